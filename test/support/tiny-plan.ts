/** One tiny graph, slow on bright pictures, whose alpha is brightness. */
import { mkdir } from 'node:fs/promises';
import type { PlanOutline } from '@matting/serving/models/plan.ts';
import type { Plan } from '@matting/serving/models/prepared-model.ts';
import type { LoadOptions } from '@matting/serving/prepared/load-prepared.ts';
import { writeTinyModel } from './tiny-model.ts';

export * from '@matting/serving/models/plan.ts';
export * from '@matting/serving/prepared/load-prepared.ts';

/** Matrix products for a white picture; 30 take about 0.1 s on an idle core. */
const TRIPS_MAX = Number(process.env.TEST_TINY_TRIPS_MAX ?? 30);
const { TEST_TINY_OPENVINO: library } = process.env;
const OUTLINE: PlanOutline = {
  name: 'tiny',
  entries: [{ model: 'tiny', inputSize: undefined, role: 'subject' }],
};

export async function buildPlan({
  cacheDir,
  provider,
}: Pick<LoadOptions, 'cacheDir' | 'provider'>): Promise<Plan> {
  await mkdir(cacheDir, { recursive: true });
  const first = await writeTinyModel(cacheDir, { kind: 'paced', tripsMax: TRIPS_MAX });
  const on = { provider, ...(library !== undefined && { openvino: { library } }) };
  const models: Plan['models'] = [{ model: { ...first, ...on }, role: 'subject' }];
  if (process.env.TEST_TINY_OPINION === undefined) return { name: OUTLINE.name, models };
  const second = await writeTinyModel(cacheDir, { kind: 'mean' });
  const opinion = { model: { ...second, ...on }, role: 'opinion' } as const;
  return { name: OUTLINE.name, models: [...models, opinion] };
}

export async function outlineOf(): Promise<PlanOutline> {
  return OUTLINE;
}

export async function loadPlanOutlines(): Promise<readonly PlanOutline[]> {
  return [];
}
