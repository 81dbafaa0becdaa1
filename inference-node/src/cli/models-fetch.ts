/** `models fetch`: brings weights into the cache and prepares them for this machine's CPU. */
import type { Writable } from 'node:stream';
import { createAnswering } from '../engine/answer-picture.ts';
import { readCpuShare } from '../engine/cpu-share.ts';
import { fetchWeights } from '../models/fetch.ts';
import { detectInstructionSet } from '../models/instruction-set.ts';
import { loadManifest, type ModelManifest } from '../models/manifest.ts';
import { prepareModel } from '../models/prepare.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { loadRegistryOptions } from '../models/registry-options.ts';
import type { CliConfig } from './config.ts';
import { createProgressView, JsonView, type ProgressView } from './progress.ts';

export interface ModelsFetchOptions {
  readonly json?: boolean;
  readonly progressJson?: boolean;
  readonly refuseAltered?: boolean;
}

export interface ModelsFetchStreams {
  readonly out: Writable;
  readonly err: Writable & { readonly isTTY?: boolean };
}

interface FetchedModel {
  readonly name: string;
  readonly version: string;
  /** SPDX. */
  readonly licence: string;
  /** Weights files that were downloaded now, and those that were there. */
  readonly fetched: readonly string[];
  readonly kept: readonly string[];
  readonly prepared: PreparedModel;
}

/** @param names none: the configured model. Throws ModelError, or the signal's reason. */
export async function modelsFetch(
  names: readonly string[],
  options: ModelsFetchOptions,
  config: CliConfig,
  streams: ModelsFetchStreams,
  signal: AbortSignal,
): Promise<void> {
  const { out, err } = streams;
  const view = options.progressJson ? new JsonView(out) : createProgressView(err);
  // All manifests first: a misspelt name is not found out after a download of minutes.
  const wanted = names.length > 0 ? [...new Set(names)] : [config.settings.model];
  const manifests = await Promise.all(wanted.map(name => loadManifest(name)));
  const models: FetchedModel[] = [];
  try {
    for (const manifest of manifests) {
      const model = await fetchOne(manifest, options, config, view, signal);
      models.push(model);
      if (options.progressJson) out.write(`${JSON.stringify({ event: 'done', ...model })}\n`);
      else if (!options.json) out.write(`${summary(model)}\n`);
    }
  } finally {
    view.stop();
  }
  if (options.json) out.write(`${JSON.stringify({ models }, null, 2)}\n`);
}

async function fetchOne(
  manifest: ModelManifest,
  options: ModelsFetchOptions,
  config: CliConfig,
  view: ProgressView,
  signal: AbortSignal,
): Promise<FetchedModel> {
  const { settings, env, cwd } = config;
  const { name, version, licence } = manifest;
  const { fetched, kept } = await fetchWeights(manifest, {
    cacheDir: settings.modelDir,
    registryOptions: () => loadRegistryOptions({ env, cwd }),
    onProgress: progress => view.fetching(name, progress),
    replaceAltered: options.refuseAltered !== true,
    signal,
  });
  view.stop();
  // The variables speak of the configured model; another one named here gets its defaults.
  const configured = name === settings.model;
  const side = configured ? settings.inputSize : undefined;
  const prepared = await prepareModel({
    manifest,
    cacheDir: settings.modelDir,
    inputSize: side === undefined ? undefined : { width: side, height: side },
    precision: configured ? settings.precision : 'auto',
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
  return { name, version, licence: licence.spdx, fetched, kept, prepared };
}

function summary(model: FetchedModel): string {
  const { prepared } = model;
  const weights = model.fetched.length > 0 ? 'fetched and checked' : 'there and checked';
  const size = `${prepared.inputWidth}x${prepared.inputHeight}`;
  const fallback = prepared.precisionFallback;
  const why = fallback === undefined ? '' : ` (not int8: ${fallback})`;
  return (
    `${model.name} ${model.version} (${model.licence}): weights ${weights}, ` +
    `prepared for ${size} in ${prepared.precision} on the CPU${why}: ${prepared.path}`
  );
}
