"""Stable-Baselines3: PPO on CartPole in four environments at once."""

import sys

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv


def main():
    kind = SubprocVecEnv if "--processes" in sys.argv else DummyVecEnv
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=5, vec_env_cls=kind)
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=128, n_epochs=4, seed=5, device="cpu", verbose=1)
    model.learn(total_timesteps=1024)
    model.save("ppo_cartpole")
    reward, _ = evaluate_policy(PPO.load("ppo_cartpole", device="cpu"), envs, n_eval_episodes=4)
    print(f"updates {model._n_updates}, reward {reward:.1f}")
    envs.close()


if __name__ == "__main__":
    main()
