/** Looks into the folders of models, plans and prepared graphs for what a request may name here. */
import {
  listManifests,
  loadManifest,
  MANIFEST_DIRECTORY,
  type ModelManifest,
} from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import type { ModelSettings } from '../models/model-settings.ts';
import {
  loadAddedPlans,
  loadPlanOutlines,
  type PlanOutline,
  refusalsOf,
  requireRole,
} from '../models/plan.ts';
import type { ExecutionProvider, PlanModel, PreparedModel } from '../models/prepared-model.ts';
import type { Selectable } from '../models/selectable.ts';
import { glanceAtModel } from '../prepared/glance-at-model.ts';

export interface Found {
  /** Plans come before models, and shipped ones before added ones. */
  readonly selectable: readonly Selectable[];
  /** Each line names something that cannot be read. */
  readonly problems: readonly string[];
}

export type Look = () => Promise<Found>;

interface LookOptions {
  readonly settings: Pick<
    ModelSettings,
    'modelDir' | 'weightsDir' | 'addedModelsDir' | 'commercialUse'
  >;
  readonly provider: ExecutionProvider;
  readonly instructionSet: string;
}

export async function lookAround(options: LookOptions): Promise<Found> {
  const { addedModelsDir } = options.settings;
  const models = new ModelsOfLook(options);
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
    const found = await attempt(() => findModels(outline, options, models));
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
    const manifest = await attempt(() => models.manifest(name));
    // A refining model is of use in plans alone.
    if (manifest === undefined || manifest.graph.trimap) continue;
    const entries = [{ model: name, inputSize: undefined, role: 'subject' }] as const;
    await find('model', { name, entries });
  }
  return { selectable, problems };
}

/** Returns undefined if one of its models is not here, or its terms are refused. */
async function findModels(
  { name: plan, entries }: PlanOutline,
  { settings }: LookOptions,
  known: ModelsOfLook,
): Promise<{ models: PlanModel[]; goodFor: string } | undefined> {
  const models: PlanModel[] = [];
  let goodFor = '';
  for (const { model: name, inputSize: side, role, extraRuns } of entries) {
    const manifest = await known.manifest(name);
    requireRole(manifest, role, plan);
    if (refusalsOf(manifest, settings.commercialUse).length > 0) return undefined;
    const model = await known.model(name, side);
    if (model === undefined) return undefined;
    models.push({ model, role, extraRuns });
    goodFor = manifest.goodFor ?? '';
  }
  return { models, goodFor };
}

/** Reads each model once in a look, however many plans name it. */
class ModelsOfLook {
  readonly #options: LookOptions;
  readonly #manifests = new Map<string, Promise<ModelManifest>>();
  readonly #models = new Map<string, Promise<PreparedModel | undefined>>();

  constructor(options: LookOptions) {
    this.#options = options;
  }

  /** @throws ModelError, the same one each time */
  manifest(name: string): Promise<ModelManifest> {
    const { addedModelsDir } = this.#options.settings;
    const known = this.#manifests.get(name);
    const manifest = known ?? loadManifest(name, MANIFEST_DIRECTORY, addedModelsDir);
    this.#manifests.set(name, manifest);
    return manifest;
  }

  /** @param side of its input, pixels; the manifest's own where undefined */
  model(name: string, side: number | undefined): Promise<PreparedModel | undefined> {
    const key = `${name} ${side}`;
    const model = this.#models.get(key) ?? this.#glance(name, side);
    this.#models.set(key, model);
    return model;
  }

  async #glance(name: string, side: number | undefined): Promise<PreparedModel | undefined> {
    const { settings, provider, instructionSet } = this.#options;
    const { modelDir: cacheDir, weightsDir } = settings;
    const manifest = await this.manifest(name);
    const inputSize = side === undefined ? undefined : { width: side, height: side };
    const wanted = { cacheDir, weightsDir, manifest, inputSize, provider, instructionSet };
    return await glanceAtModel(wanted);
  }
}
