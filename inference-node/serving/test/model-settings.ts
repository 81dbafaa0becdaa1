import { EnvReader } from '@matting/program/env.ts';
import { type ModelSettings, readModelSettings } from '../models/model-settings.ts';

export function parseModelSettings(
  env: Readonly<Record<string, string | undefined>>,
  cwd: string,
): ModelSettings {
  const reader = new EnvReader(env);
  const settings = readModelSettings(reader, cwd);
  reader.requireValid();
  return settings;
}
