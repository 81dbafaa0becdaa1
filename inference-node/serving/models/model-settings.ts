/** The variables that choose a model, for the node's configuration and for the CLI alike. Pure. */
import { resolve } from 'node:path';
import { EnvReader } from '#program/env.ts';
import { INPUT_SIDE_MAX, MODEL_NAME, PRECISIONS, type Precision } from './prepared-model.ts';

export interface ModelSettings {
  /**
   * MATTING_MODEL: a manifest's name; this single model replaces the plan. Whether the manifest
   * exists is checked when it is loaded.
   */
  readonly model: string | undefined;
  /** MATTING_QUALITY: the plan, unless a model is named. */
  readonly quality: Quality;
  /** MATTING_MODEL_DIR, absolute: the cache of weights and prepared graphs. */
  readonly modelDir: string;
  /** MATTING_WEIGHTS_DIR, absolute: weights that are there already; only read. */
  readonly weightsDir: string | undefined;
  /**
   * MATTING_MODEL_INPUT_SIZE: side of the square in pixels; the manifest's default when undefined.
   */
  readonly inputSize: number | undefined;
  /** MATTING_PRECISION. */
  readonly precision: 'auto' | Precision;
  /** MATTING_COMMERCIAL_USE: which models may run for their terms; every one when undefined. */
  readonly commercialUse: CommercialUseGate | undefined;
}

/** weights: only models whose weights may be used commercially; strict: their training data too. */
export const COMMERCIAL_USE_GATES = ['weights', 'strict'] as const;
export type CommercialUseGate = (typeof COMMERCIAL_USE_GATES)[number];

export const QUALITIES = ['fast', 'standard', 'best', 'permissive'] as const;
export type Quality = (typeof QUALITIES)[number];

export const DEFAULT_QUALITY: Quality = 'standard';
export const DEFAULT_MODEL_DIR = 'model-cache';

/**
 * Problems stay in the reader, for its requireValid.
 * @param cwd base of a relative MATTING_MODEL_DIR.
 */
export function readModelSettings(reader: EnvReader, cwd: string): ModelSettings {
  const weightsDir = reader.string('MATTING_WEIGHTS_DIR', { default: undefined });
  const settings: ModelSettings = {
    model: reader.string('MATTING_MODEL', {
      default: undefined,
      pattern: MODEL_NAME,
      expected: 'the name of a model, as `models list` shows them',
    }),
    quality: reader.oneOf('MATTING_QUALITY', QUALITIES, { default: DEFAULT_QUALITY }),
    modelDir: resolve(cwd, reader.string('MATTING_MODEL_DIR', { default: DEFAULT_MODEL_DIR })),
    weightsDir: weightsDir && resolve(cwd, weightsDir),
    inputSize: reader.integer('MATTING_MODEL_INPUT_SIZE', {
      default: undefined,
      min: 1,
      max: INPUT_SIDE_MAX,
    }),
    precision: reader.oneOf('MATTING_PRECISION', ['auto', ...PRECISIONS], {
      default: 'auto' as const,
    }),
    commercialUse: reader.oneOf('MATTING_COMMERCIAL_USE', COMMERCIAL_USE_GATES, {
      default: undefined,
    }),
  };
  if (reader.has('MATTING_MODEL') && reader.has('MATTING_QUALITY')) {
    reader.problem('MATTING_QUALITY', 'unset where MATTING_MODEL names a single model');
  }
  // A size or precision applies to one model; for a plan of several it would have no meaning.
  const forOneModel = {
    MATTING_MODEL_INPUT_SIZE: settings.inputSize !== undefined,
    MATTING_PRECISION: settings.precision !== 'auto',
  };
  for (const [variable, given] of Object.entries(forOneModel)) {
    if (given && !reader.has('MATTING_MODEL')) {
      reader.problem(variable, 'set together with MATTING_MODEL only');
    }
  }
  return settings;
}

/** Throws ConfigError with every problem found. */
export function parseModelSettings(
  env: Readonly<Record<string, string | undefined>>,
  cwd: string,
): ModelSettings {
  const reader = new EnvReader(env);
  const settings = readModelSettings(reader, cwd);
  reader.requireValid();
  return settings;
}
