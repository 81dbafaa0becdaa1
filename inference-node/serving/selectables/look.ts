/** What a request may name here: looks into the folders of models, plans and prepared graphs. */
import { listManifests, loadManifest, MANIFEST_DIRECTORY } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import {
  loadAddedPlans,
  loadPlanOutlines,
  type ModelSettings,
  type PlanOutline,
  refusalsOf,
  requireRole,
} from '../models/plan.ts';
import type { ExecutionProvider, PlanModel } from '../models/prepared-model.ts';
import type { Selectable } from '../models/selectable.ts';
import { glanceAtModel } from '../prepared/load-prepared.ts';

export interface Found {
  /** Plans before models, and what is shipped before what is added. */
  readonly selectable: readonly Selectable[];
  /** Each a line: what cannot be read. */
  readonly problems: readonly string[];
}

export type Look = () => Promise<Found>;

export interface LookOptions {
  readonly settings: Pick<
    ModelSettings,
    'modelDir' | 'weightsDir' | 'addedModelsDir' | 'commercialUse'
  >;
  readonly provider: ExecutionProvider;
  readonly instructionSet: string;
}

export async function lookAround(options: LookOptions): Promise<Found> {
  const { addedModelsDir } = options.settings;
  const problems: string[] = [];
  const selectable: Selectable[] = [];
  const attempt = async <Value>(read: () => Promise<Value>): Promise<Value | undefined> => {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof ModelError)) throw error;
      problems.push(error.message);
      return undefined;
    }
  };
  const plans = [
    ...((await attempt(() => loadPlanOutlines())) ?? []),
    ...((await attempt(() => loadAddedPlans(addedModelsDir))) ?? []),
  ];
  const names = new Set<string>();
  const find = async (kind: Selectable['kind'], outline: PlanOutline) => {
    const { name } = outline;
    if (names.has(name)) return;
    const found = await attempt(() => findModels(outline, options));
    if (found === undefined) return;
    names.add(name);
    selectable.push({
      name,
      kind,
      goodFor: outline.goodFor ?? found.goodFor,
      models: found.models,
    });
  };
  for (const outline of plans) await find('plan', outline);
  const planNames = new Set(plans.map(({ name }) => name));
  for (const name of await listManifests(MANIFEST_DIRECTORY, addedModelsDir)) {
    if (planNames.has(name)) continue;
    const manifest = await attempt(() => loadManifest(name, MANIFEST_DIRECTORY, addedModelsDir));
    // What refines is of use in plans alone.
    if (manifest === undefined || manifest.graph.trimap) continue;
    const entries = [{ model: name, inputSize: undefined, role: 'subject' }] as const;
    await find('model', { name, entries });
  }
  return { selectable, problems };
}

/** Undefined: a model of them is not here, or its terms are refused. */
async function findModels(
  { name: plan, entries }: PlanOutline,
  { settings, provider, instructionSet }: LookOptions,
): Promise<{ models: PlanModel[]; goodFor: string } | undefined> {
  const { modelDir: cacheDir, weightsDir, addedModelsDir, commercialUse } = settings;
  const models: PlanModel[] = [];
  let goodFor = '';
  for (const { model: name, inputSize: side, role } of entries) {
    const manifest = await loadManifest(name, MANIFEST_DIRECTORY, addedModelsDir);
    requireRole(manifest, role, plan);
    if (refusalsOf(manifest, commercialUse).length > 0) return undefined;
    const inputSize = side === undefined ? undefined : { width: side, height: side };
    const folders = { cacheDir, weightsDir };
    const wanted = { ...folders, manifest, inputSize, provider, instructionSet };
    const model = await glanceAtModel(wanted);
    if (model === undefined) return undefined;
    models.push({ model, role });
    goodFor = manifest.goodFor ?? '';
  }
  return { models, goodFor };
}
