import { resolve } from 'node:path';
import type { EnvReader } from '@matting/program/env.ts';
import { readDataDir, readModelDirs } from '@matting/program/shared-settings.ts';
import { SELECTABLE_NAME } from '@matting/proto/contract/selectable-names.ts';
import { PRECISIONS, type Precision } from './prepared-model.ts';

export interface ModelSettings {
  /** A plan or single model in place of `quality`. Checked when it is loaded. */
  readonly model: string | undefined;
  readonly quality: (typeof QUALITIES)[number];
  readonly modelDir: string;
  /** Existing weights, only read. */
  readonly weightsDir: string | undefined;
  readonly addedModelsDir: string;
  readonly precision: 'auto' | Precision;
  /** Undefined: models of any terms run. */
  readonly commercialUse: CommercialUseGate | undefined;
}

/** weights: only models whose weights allow commercial use. strict: also their training data. */
const COMMERCIAL_USE_GATES = ['weights', 'strict'] as const;
export type CommercialUseGate = (typeof COMMERCIAL_USE_GATES)[number];

const QUALITIES = ['fast', 'standard', 'best', 'permissive'] as const;

export function readModelSettings(whole: EnvReader, cwd: string): ModelSettings {
  const reader = whole.section('Models');
  const weightsDir = reader.string('MATTING_WEIGHTS_DIR', {
    about: `A directory of weights in the layout of \`MATTING_MODEL_DIR\`. The node looks here first,
      checks them and only reads the directory.`,
    default: undefined,
  });
  const settings: ModelSettings = {
    model: reader.string('MATTING_MODEL', {
      about: `What the node serves in place of the plan of \`MATTING_QUALITY\`: any plan or model.`,
      default: undefined,
      pattern: SELECTABLE_NAME,
      expected: 'the name of a plan or model, as `models list` shows them',
    }),
    quality: reader.oneOf('MATTING_QUALITY', QUALITIES, {
      about: `The plan of models that makes a matte. \`fast\`: isnet at 768 px, and at 1024 px if it
        is unsure. \`standard\`: isnet, modnet as a second opinion at edges, and, if isnet is unsure, a
        second look and up to three further ones. \`best\`: the second look at every picture.
        \`permissive\`: u2netp and modnet, whose weights allow commercial use. Not together with \`MATTING_MODEL\`.`,
      default: 'standard',
    }),
    ...readModelDirs(whole, readDataDir(whole, cwd), cwd),
    weightsDir: weightsDir && resolve(cwd, weightsDir),
    precision: reader.oneOf('MATTING_PRECISION', ['auto', ...PRECISIONS], {
      about: 'With `MATTING_MODEL`: the [precision](nodes.md#precision). A named one is strict.',
      default: 'auto' as const,
    }),
    commercialUse: reader.oneOf('MATTING_COMMERCIAL_USE', COMMERCIAL_USE_GATES, {
      about: `Refuses models by their [terms](../models/README.md#commercial-use). \`weights\` requires
        weights that allow commercial use: modnet and u2netp. \`strict\` also requires such training
        data, which no bundled model has. A refused model stops the start.`,
      default: undefined,
    }),
  };
  if (reader.has('MATTING_MODEL') && reader.has('MATTING_QUALITY')) {
    reader.problem('MATTING_QUALITY', 'unset where MATTING_MODEL names what the node serves');
  }
  // A precision applies to one model, not to a plan of several.
  if (settings.precision !== 'auto' && !reader.has('MATTING_MODEL')) {
    reader.problem('MATTING_PRECISION', 'set together with MATTING_MODEL only');
  }
  return settings;
}
