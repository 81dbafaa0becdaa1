/**
 * Which models make a matte. A plan is data: today one model under its own name; one of several
 * will name its models, their sizes, and how their mattes merge.
 */
import { loadManifest } from './manifest.ts';
import { type PrepareOptions, type PrepareProgress, prepareModel } from './prepare.ts';
import type { Plan } from './prepared-model.ts';

export interface PlanOptions extends Omit<PrepareOptions, 'manifest' | 'onProgress'> {
  readonly modelName: string;
  readonly onProgress?: (model: string, progress: PrepareProgress) => void;
}

/** Prepares every model of the plan. Throws ModelError as loadManifest and prepareModel do. */
export async function buildPlan(options: PlanOptions): Promise<Plan> {
  const { modelName, onProgress, ...preparation } = options;
  const manifest = await loadManifest(modelName, options.manifestDirectory);
  const model = await prepareModel({
    ...preparation,
    manifest,
    onProgress: progress => onProgress?.(modelName, progress),
  });
  return { name: modelName, models: [model] };
}
