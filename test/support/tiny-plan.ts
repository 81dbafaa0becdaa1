/**
 * In place of an inference node's models: one tiny graph that takes the longer the brighter a
 * picture is, and whose alpha is the picture's brightness. Engines and picture workers are real.
 */
import { mkdir } from 'node:fs/promises';
import type { PlanOutline } from '../../inference-node/src/models/plan.ts';
import type { Plan } from '../../inference-node/src/models/prepared-model.ts';
import type { PlanOptions } from '../../inference-node/src/models/preparing/build-plan.ts';
import { writeTinyModel } from './tiny-model.ts';

/** Products of matrices for a white picture: some 0.1 s on an idle core. */
const TRIPS_MAX = 30;
const OUTLINE: PlanOutline = {
  name: 'tiny',
  entries: [{ model: 'tiny', inputSize: undefined, role: 'subject' }],
};

export async function buildPlan({ cacheDir }: Pick<PlanOptions, 'cacheDir'>): Promise<Plan> {
  await mkdir(cacheDir, { recursive: true });
  const model = await writeTinyModel(cacheDir, { kind: 'paced', tripsMax: TRIPS_MAX });
  return { name: OUTLINE.name, models: [{ model, role: 'subject' }] };
}

export async function outlineOf(): Promise<PlanOutline> {
  return OUTLINE;
}

export async function loadPlanOutlines(): Promise<readonly PlanOutline[]> {
  return [];
}
