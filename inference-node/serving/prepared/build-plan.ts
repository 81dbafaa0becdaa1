/** Prepares the models of a plan. */
import { loadManifest } from '../models/manifest.ts';
import type { PlanOutline } from '../models/plan.ts';
import type { Plan, PlanModel } from '../models/prepared-model.ts';
import { type LoadOptions, loadPrepared, type PrepareProgress } from './load-prepared.ts';

/** But for `outline` what is the same for every model. */
export interface PlanOptions extends Omit<LoadOptions, 'manifest' | 'onProgress' | 'inputSize'> {
  readonly outline: PlanOutline;
  readonly onProgress?: (model: string, progress: PrepareProgress) => void;
}

/** Prepares every model of the plan. Throws ModelError as loadManifest and loadPrepared do. */
export async function buildPlan(options: PlanOptions): Promise<Plan> {
  const { outline, onProgress, ...preparation } = options;
  const models: PlanModel[] = [];
  for (const { model: name, inputSize: side, role } of outline.entries) {
    const manifest = await loadManifest(name, options.manifestDirectory);
    const model = await loadPrepared({
      ...preparation,
      manifest,
      inputSize: side === undefined ? undefined : { width: side, height: side },
      onProgress: progress => onProgress?.(name, progress),
    });
    models.push({ model, role });
  }
  return { name: outline.name, models };
}
