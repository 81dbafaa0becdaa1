/** The plan's models: whether they may run, are fetched and whole, prepared, and fit the memory. */
import { type Finding, failure, ok, reasonOf, warning } from '#program/doctor/findings.ts';
import { ConfigError } from '#program/env.ts';
import type { Config } from '../config.ts';
import { readCpuShare } from '../engine/choice/cpu-share.ts';
import { chooseEngineLayout } from '../engine/choice/engine-layout.ts';
import {
  computeMegapixelBudget,
  type EngineModel,
  enginesInMemory,
  readMemoryLimitBytes,
} from '../memory-budget.ts';
import { admittedOutlineOf } from '../models/commercial-use.ts';
import { loadManifest, type ModelManifest } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import type { ModelSettings } from '../models/model-settings.ts';
import type { PlanOutline } from '../models/plan.ts';
import type { ExecutionProvider } from '../models/prepared-model.ts';
import { listPrepared, PREPARER_REVISION } from '../models/preparing/prepared-cache.ts';
import { findWeightsFile } from '../models/weights/weights-cache.ts';

const FETCH = 'matting models fetch, as the user of the node';

/** What is to run; undefined: it cannot be said, or is refused. */
export async function planFindings(settings: ModelSettings): Promise<{
  readonly outline: PlanOutline | undefined;
  readonly findings: readonly Finding[];
}> {
  try {
    const outline = await admittedOutlineOf(settings);
    const models = outline.entries.map(({ model }) => model).join(', ');
    return { outline, findings: [ok('plan', `${outline.name}: ${models}`)] };
  } catch (error) {
    if (!(error instanceof ConfigError) && !(error instanceof ModelError)) throw error;
    const advice = 'set MATTING_QUALITY or MATTING_MODEL to one that is there and admitted';
    return { outline: undefined, findings: [failure('plan', reasonOf(error), advice)] };
  }
}

export async function modelFindings(
  config: Config,
  { entries }: PlanOutline,
  provider: ExecutionProvider | undefined,
): Promise<readonly Finding[]> {
  const { modelDir } = config.modelSettings;
  const findings: Finding[] = [];
  const prepared: EngineModel[] = [];
  for (const { model, inputSize } of entries) {
    const manifest = await loadManifest(model);
    findings.push(await weightsFinding(manifest, config.modelSettings));
    const current = (await listPrepared(modelDir, manifest)).find(
      ({ sidecar }) =>
        sidecar.revision === PREPARER_REVISION &&
        (provider === undefined || sidecar.provider === provider) &&
        (inputSize === undefined || sidecar.inputWidth === inputSize),
    );
    if (current !== undefined) prepared.push(current.sidecar);
  }
  if (prepared.length < entries.length) {
    const found = `${entries.length - prepared.length} of ${entries.length} are not prepared yet`;
    return [...findings, warning('models', found, `the first start does it, or ${FETCH}`)];
  }
  if (provider !== undefined) findings.push(await memoryFinding(config, prepared, provider));
  return findings;
}

async function weightsFinding(
  manifest: ModelManifest,
  { modelDir: cacheDir, weightsDir }: ModelSettings,
): Promise<Finding> {
  for (const file of manifest.files) {
    const { check } = await findWeightsFile({ cacheDir, weightsDir }, manifest, file);
    if (check.state === 'checked') continue;
    const wrong = check.state === 'missing' ? 'is not there' : `is damaged: ${check.reason}`;
    return failure('models', `${manifest.name}: ${file.name} ${wrong}`, FETCH);
  }
  return ok('models', `${manifest.name} ${manifest.version} is fetched and whole`);
}

/** The same sum as at a start. */
async function memoryFinding(
  { engines: asked, engineGoal, megapixelsMax }: Config,
  models: readonly EngineModel[],
  provider: ExecutionProvider,
): Promise<Finding> {
  const memoryLimitBytes = readMemoryLimitBytes();
  const chosen = chooseEngineLayout({
    provider,
    precisions: models.map(({ precision }) => precision),
    cpuShare: await readCpuShare(),
    goal: engineGoal,
    enginesMax: enginesInMemory(memoryLimitBytes, models),
  });
  const engines = asked ?? chosen.engines;
  const all = models.flatMap(model => Array.from({ length: engines }, () => model));
  const budget = computeMegapixelBudget({ memoryLimitBytes, engines: all });
  const gigabytes = `${(memoryLimitBytes / 1e9).toFixed(1)} GB`;
  if (budget === undefined && megapixelsMax === undefined) {
    const found = `${gigabytes} leave no room for a photo beside ${all.length} engines`;
    const advice = 'give more memory, fewer engines, or set MATTING_NODE_MEGAPIXELS_MAX';
    return failure('memory', found, advice);
  }
  const room = megapixelsMax ?? budget?.megapixelsMax;
  return ok('memory', `${gigabytes} for ${all.length} engines and ${room} megapixels at once`);
}
