import type { PreparedModel } from '../models/prepared-model.ts';
import { checkAnswerOnDevice } from '../prepared/device-answer.ts';

export type DeviceOptions = Omit<Parameters<typeof checkAnswerOnDevice>[0], 'model'>;

/** Resolves with what is wrong with a device's answer, as a start finds it; undefined: nothing. */
export function askDevice(
  model: PreparedModel,
  options: DeviceOptions,
): Promise<string | undefined> {
  return checkAnswerOnDevice({ ...options, model });
}
