import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  fields,
  list,
  parseChecked,
  text,
  wholeNumber,
} from '@matting/serving/models/checked-json.ts';
import { FACT_SCHEMAS, type ModelManifest } from '@matting/serving/models/manifest.ts';
import { diskError, ModelError } from '@matting/serving/models/model-error.ts';
import { INPUT_SIDE_MAX, MODEL_NAME } from '@matting/serving/models/prepared-model.ts';
import type { Facts, OpenFact, OpenFacts } from '../probing/probe-types.ts';

interface StatedManifest extends Omit<Facts, 'firstOutput'> {
  /** Notes for people. Programs ignore them. */
  readonly about?: readonly string[];
  readonly name?: string;
  readonly licence?: ModelManifest['licence'];
}

const SIDE = wholeNumber(1, INPUT_SIDE_MAX);
const SWITCH = { type: 'boolean', description: 'true or false' };
const FIELDS: Parameters<typeof fields<StatedManifest>>[0] = {
  about: list(text()),
  name: text(MODEL_NAME),
  size: fields<Size>({ width: SIDE, height: SIDE }),
  multipleOf: SIDE,
  inverted: SWITCH,
  output: { type: 'string', minLength: 1, description: 'the name of an output' },
  trimap: SWITCH,
  ...FACT_SCHEMAS,
};
const SCHEMA = fields(FIELDS, Object.keys(FIELDS) as (keyof StatedManifest)[]);

export async function readStatedManifest(path: string) {
  const json = await readFile(path, 'utf8').catch(error => {
    throw diskError(error, 'read', path);
  });
  const { about: _, name, licence, ...facts } = parseChecked<StatedManifest>(json, path, SCHEMA);
  return { name, licence, facts };
}

const FORMS: Readonly<Record<OpenFact, string>> = {
  normalisation:
    '{"mean": [R, G, B], "std": [R, G, B]} for values of 0 to 255, as its maker trained it; ' +
    'often [123.675, 116.28, 103.53] and [58.395, 57.12, 57.375], or [0, 0, 0] and [255, 255, 255]',
  size: '{"width": N, "height": N}, in pixels',
  multipleOf: 'N, if the graph takes every side that is a multiple of N; else remove it',
  activation:
    'none for an output of 0 to 1, scale255 for 0 to 255, signed for -1 to 1, sigmoid for logits, ' +
    'softmax for logits of two classes, logit for a sigmoid of a sigmoid',
  output: 'the name of the output that is the matte',
};

/**
 * Writes the facts that the graph shows, and null for each unknown one. Replaces no file.
 * @returns a message for a person
 */
export async function writeDraft(
  folder: string,
  { name, licence }: Pick<ModelManifest, 'name' | 'licence'>,
  { open, graph }: OpenFacts,
): Promise<string> {
  const { inputs = [], outputs = [], facts: { firstOutput: _, ...facts } = {} } = graph ?? {};
  // `multipleOf` is optional, but stating it allows other sizes.
  const nulls = open.includes('size') ? [...open, 'multipleOf' as const] : open;
  const unstated = [...new Set(nulls)];
  const draft: Record<keyof StatedManifest, unknown> = {
    about: [
      ...inputs.map(line => `input ${line}`),
      ...outputs.map(line => `output ${line}`),
      'Replace each null:',
      ...unstated.map(fact => `${fact}: ${FORMS[fact]}`),
    ],
    name,
    ...(Object.fromEntries(unstated.map(fact => [fact, null])) as Record<OpenFact, null>),
    ...{ fit: 'stretch', inverted: false, colourOrder: 'rgb' },
    ...{ trimap: false, ...facts },
    licence,
  };
  const file = `${name}.manifest.json`;
  const path = join(folder, file);
  const json = `${JSON.stringify(draft, null, 2)}\n`;
  try {
    await writeFile(path, json, { flag: 'wx' });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return `or use ${file}, which is there already, with --manifest ${file}`;
    const refused = diskError(error, 'write', path);
    if (refused instanceof ModelError) return `there is no draft: ${refused.message}`;
    throw refused;
  }
  return `or replace each null of the draft ${file}, and add --manifest ${file}`;
}
