/** `models fetch`: brings weights into the cache and prepares them for this machine's CPU. */
import type { Writable } from 'node:stream';
import { createAnswering } from '../../serving/engine/choice/answer-picture.ts';
import { readCpuShare } from '../../serving/engine/choice/cpu-share.ts';
import { requireAdmitted } from '../../serving/models/commercial-use.ts';
import { describeTerms } from '../../serving/models/licence.ts';
import { loadManifest, type ModelManifest } from '../../serving/models/manifest.ts';
import { outlineOf, type PlanEntry } from '../../serving/models/plan.ts';
import { detectInstructionSet } from '../../serving/prepared/instruction-set.ts';
import { prepareModel } from '../preparing/prepare.ts';
import { fetchWeights } from '../weights/fetch.ts';
import type { CliConfig } from './cli-config.ts';
import { createProgressView, JsonView, type ProgressView } from './progress.ts';

export interface ModelsFetchOptions {
  readonly json?: boolean;
  readonly progressJson?: boolean;
  readonly refuseAltered?: boolean;
  readonly weightsOnly?: boolean;
}

type FetchedModel = Awaited<ReturnType<typeof fetchOne>>;

/**
 * With --progress-json and no names the first line is `{"event": "terms", "terms"}`, in words.
 * @param names none: those of the configured plan, or the configured model.
 * @throws ModelError; ConfigError where MATTING_COMMERCIAL_USE refuses one; the signal's reason.
 */
export async function modelsFetch(
  names: readonly string[],
  options: ModelsFetchOptions,
  config: CliConfig,
  { out, err }: { readonly out: Writable; readonly err: Writable & { readonly isTTY?: boolean } },
  signal: AbortSignal,
): Promise<void> {
  const view = options.progressJson ? new JsonView(out) : createProgressView(err);
  // All manifests first: a misspelt name is not found out after a download of minutes.
  const { name: plan, entries } = await outlineOf(config.settings);
  const wanted = names.length > 0 ? [...new Set(names)].map(name => named(name, entries)) : entries;
  const loading = wanted.map(async ({ model, inputSize }) => {
    return { manifest: await loadManifest(model), side: inputSize };
  });
  const known = await Promise.all(loading);
  await requireAdmitted(wanted, config.settings.commercialUse);
  if (options.progressJson && names.length === 0) {
    const terms = describeTerms(
      plan,
      known.map(({ manifest }) => manifest),
    );
    out.write(`${JSON.stringify({ event: 'terms', terms })}\n`);
  }
  const models: FetchedModel[] = [];
  try {
    for (const { manifest, side } of known) {
      const model = await fetchOne(manifest, side, options, config, view, signal);
      models.push(model);
      if (options.progressJson) out.write(`${JSON.stringify({ event: 'done', ...model })}\n`);
      else if (!options.json) out.write(`${summary(model)}\n`);
    }
  } finally {
    view.stop();
  }
  if (options.json) out.write(`${JSON.stringify({ models }, null, 2)}\n`);
}

/** A model named on the command line gets its own default, unless it is the plan's too. */
function named(name: string, entries: readonly PlanEntry[]): PlanEntry {
  const planned = entries.find(({ model }) => model === name);
  return planned ?? { model: name, inputSize: undefined, role: 'subject' };
}

async function fetchOne(
  manifest: ModelManifest,
  side: number | undefined,
  options: ModelsFetchOptions,
  config: CliConfig,
  view: ProgressView,
  signal: AbortSignal,
) {
  const { settings, env, cwd } = config;
  const { name, version, licence } = manifest;
  const places = { cacheDir: settings.modelDir, weightsDir: settings.weightsDir };
  const { fetched, kept } = await fetchWeights(manifest, {
    ...places,
    registryOptions: async () => {
      // Npm's configuration takes a while to load, and most calls fetch nothing.
      const { loadRegistryOptions } = await import('../weights/registry-options.ts');
      return loadRegistryOptions({ env, cwd });
    },
    onProgress: progress => view.fetching(name, progress),
    replaceAltered: options.refuseAltered !== true,
    signal,
  });
  view.stop();
  const model = { name, version, licence: licence.spdx, fetched, kept };
  if (options.weightsOnly) return { ...model, prepared: undefined };
  const prepared = await prepareModel({
    ...places,
    manifest,
    ...(side !== undefined && { inputSize: { width: side, height: side } }),
    precision: name === settings.model ? settings.precision : 'auto',
    provider: 'cpu',
    instructionSet: await detectInstructionSet(),
    answering: createAnswering({
      childEnv: config.childEnv,
      threads: Math.max(1, Math.floor(await readCpuShare())),
    }),
    onProgress: progress => view.preparing(name, progress),
  });
  signal.throwIfAborted();
  view.stop();
  return { ...model, prepared };
}

function summary(model: FetchedModel): string {
  const { prepared } = model;
  const weights = model.fetched.length > 0 ? 'fetched and checked' : 'there and checked';
  const said = `${model.name} ${model.version} (${model.licence}): weights ${weights}`;
  if (prepared === undefined) return said;
  const size = `${prepared.inputWidth}x${prepared.inputHeight}`;
  const fallback = prepared.precisionFallback;
  const why = fallback === undefined ? '' : ` (not int8: ${fallback})`;
  return `${said}, prepared for ${size} in ${prepared.precision} on the CPU${why}: ${prepared.path}`;
}
