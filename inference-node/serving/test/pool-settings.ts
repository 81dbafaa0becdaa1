import { EnvReader } from '@matting/program/env.ts';
import { readModelSettings } from '../models/model-settings.ts';
import { type Environment, type PoolSettings, readPoolSettings } from '../start/pool-settings.ts';

export function poolSettings(env: Environment = {}): PoolSettings {
  const reader = new EnvReader(env);
  const cwd = process.cwd();
  const settings = readPoolSettings(reader, {
    env,
    modelSettings: readModelSettings(reader, cwd),
    cwd,
  });
  reader.requireValid();
  return settings;
}
