import type { PreparedModel } from '../models/prepared-model.ts';
import { checkAnswerOnDevice } from '../prepared/device-answer.ts';

export type DeviceOptions = Omit<Parameters<typeof checkAnswerOnDevice>[0], 'model'>;

/** As a start does. Resolves with what is wrong, or undefined. */
export function askDevice(
  model: PreparedModel,
  options: DeviceOptions,
): Promise<string | undefined> {
  return checkAnswerOnDevice({ ...options, model });
}
