/**
 * The labels of a plan's model in metrics, log and results. Its name is not enough: a plan may hold
 * one model at several sizes.
 */
import type { MatteRole } from './models/prepared-model.ts';
import type { PlanRun } from './pipeline.ts';

export const RUN_LABELS = ['model', 'input_size', 'role'] as const;

export type RunLabels = Readonly<Record<(typeof RUN_LABELS)[number], string>>;

export const ROLE_LABELS = {
  subject: 'subject',
  secondLook: 'second_look',
  opinion: 'opinion',
} as const satisfies Record<MatteRole, string>;

/** `input_size` is the input's side in pixels; of one that is not square `1024x768`. */
export function runLabels({ model, role }: PlanRun): RunLabels {
  const { inputWidth, inputHeight } = model;
  const size = inputWidth === inputHeight ? `${inputWidth}` : `${inputWidth}x${inputHeight}`;
  return { model: model.model, input_size: size, role: ROLE_LABELS[role] };
}
