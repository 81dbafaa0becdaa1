/** Prepares the models of a plan. */
import { loadManifest } from '../../serving/models/manifest.ts';
import type { PlanOutline } from '../../serving/models/plan.ts';
import type { Plan, PlanModel } from '../../serving/models/prepared-model.ts';
import { type PrepareOptions, type PrepareProgress, prepareModel } from './prepare.ts';

/** But for `outline` what is the same for every model. */
export interface PlanOptions extends Omit<PrepareOptions, 'manifest' | 'onProgress' | 'inputSize'> {
  readonly outline: PlanOutline;
  readonly onProgress?: (model: string, progress: PrepareProgress) => void;
}

/** Prepares every model of the plan. Throws ModelError as loadManifest and prepareModel do. */
export async function buildPlan(options: PlanOptions): Promise<Plan> {
  const { outline, onProgress, ...preparation } = options;
  const models: PlanModel[] = [];
  for (const { model: name, inputSize: side, role } of outline.entries) {
    const manifest = await loadManifest(name, options.manifestDirectory);
    const model = await prepareModel({
      ...preparation,
      manifest,
      inputSize: side === undefined ? undefined : { width: side, height: side },
      onProgress: progress => onProgress?.(name, progress),
    });
    models.push({ model, role });
  }
  return { name: outline.name, models };
}
