/**
 * Mattes on the provider against those of the CPU in fp32: by how many levels of 255 they differ,
 * and, of photos with a reference, whether they are as good. By model, stretched to the photo; and
 * the plan `standard` as it runs, refined.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import {
  compareAlphas,
  PARITY_MEAN_DIFFERENCE_MAX,
} from '../../inference-node/src/engine/choice/parity.ts';
import type { PlanEntry } from '../../inference-node/src/models/plan.ts';
import { decodeFile } from '../../inference-node/src/picture/codecs/decode.ts';
import { refineMatte } from '../../inference-node/src/picture/matte/refine.ts';
import type { RgbaPicture } from '../../inference-node/src/picture/rgba-picture.ts';
import { drawPhotos } from '../photos.ts';
import { plainMatte } from '../quality/cutout-errors.ts';
import { measureQuickly } from '../quality/matte-metrics.ts';
import { type ModelRunner, openModelRunner, type RunsOn } from '../quality/model-runner.ts';
import { findPhotos, loadPhoto } from '../quality/photos.ts';
import { entriesOf, inferPlan } from '../quality/plan-runner.ts';
import { nameOf } from './bare.ts';
import type { Card } from './card.ts';
import { mean, shown } from './figures.ts';
import { type Section, WrongFigures } from './section.ts';

export interface ComparedPhoto {
  readonly name: string;
  readonly picture: RgbaPicture;
  /** Of the photo's size; undefined: there is no reference. */
  readonly reference: Uint8Array | undefined;
}

export const QUALITY_MEASURES = ['sad', 'mse', 'gradient', 'mae', 'softMae'] as const;
type Measure = (typeof QUALITY_MEASURES)[number];
export type Quality = Readonly<Record<Measure, number>>;

/** One photo, both sides. */
export interface Compared {
  readonly name: string;
  readonly meanLevels: number;
  readonly greatestLevel: number;
  readonly errors: { readonly cpu: Quality; readonly provider: Quality } | undefined;
}

export interface ParityFigures extends Record<string, unknown> {
  readonly photos: number;
  readonly meanLevels: number;
  readonly worstPhoto: string;
  readonly worstMeanLevels: number;
  readonly greatestLevel: number;
  readonly withReference: number;
  readonly ratios?: Readonly<Record<string, number>>;
  readonly worstQualityRatio?: number;
}

type MakeMatte = (models: ModelRunner, photo: ComparedPhoto) => Promise<Uint8Array>;

/** A photo on the CPU in fp32 takes so long, at most, before it is not waited for. */
const PHOTO_NEEDS_MS = 2000;

export async function measureParity(card: Card, section: Section): Promise<void> {
  const { provider, graphs } = card.options;
  const photos = await readPhotos(card.options.photos);
  const referenced = photos.filter(({ reference }) => reference !== undefined).length;
  section.note({ provider, photos: photos.length, withReference: referenced });
  const side = (on: Partial<RunsOn>): RunsOn => ({
    ...{ provider: 'cpu', precision: 'fp32', threads: card.cores, device: undefined },
    ...{ childEnv: card.engineEnv({ precision: 'fp32' }), ...on },
  });
  const compare = async (name: string, on: RunsOn, make: MakeMatte) => {
    const [cpu, other] = [openModelRunner(undefined, side({})), openModelRunner(undefined, on)];
    try {
      await section.row(name, PHOTO_NEEDS_MS, async signal => {
        const compared: Compared[] = [];
        for (const photo of photos) {
          if (signal.aborted) break;
          compared.push(
            await comparePhoto(photo, await make(cpu, photo), await make(other, photo)),
          );
        }
        return requireParity({ of: photos.length, ...summariseParity(compared) });
      });
    } finally {
      await Promise.all([cpu.close(), other.close()]);
    }
  };
  for (const graph of graphs) {
    const { model, side: inputSize, precision } = graph;
    const entry: PlanEntry = { model, inputSize, role: 'subject' };
    const on = { provider, precision, device: card.newDevice(), childEnv: card.engineEnv(graph) };
    await compare(nameOf(graph), side(on), async (models, { picture }) =>
      plainMatte(await models.run(entry, picture), picture),
    );
  }
  if (!card.options.plans.includes('standard')) return;
  const entries = await entriesOf({ plan: 'standard' });
  const on = { provider, precision: 'auto', device: card.newDevice() } as const;
  await compare('plan standard, refined', side(on), async (models, { picture }) =>
    refineMatte(await inferPlan(entries, models, picture), picture),
  );
}

/** Of the folders; photos that are drawn where there are none. */
async function readPhotos(folders: readonly string[]): Promise<ComparedPhoto[]> {
  const photos: ComparedPhoto[] = [];
  const decode = (file: Buffer) =>
    decodeFile(file, { declared: undefined, onOpened: () => undefined });
  if (folders.length === 0) {
    for (const { name, file } of await drawPhotos()) {
      photos.push({ name, picture: await decode(file), reference: undefined });
    }
    const demo = readFileSync(path.join(import.meta.dirname, '../../docs/images/demo.jpg'));
    return [...photos, { name: 'demo.jpg', picture: await decode(demo), reference: undefined }];
  }
  const stems = findPhotos(folders);
  for (const stem of stems) {
    const { name, picture, alpha } = await loadPhoto(stem);
    photos.push({ name, picture, reference: alpha });
  }
  for (const folder of folders) {
    for (const name of globSync('**/*.{jpg,jpeg,png,webp}', { cwd: folder }).sort()) {
      const stem = path.join(folder, name.replace(/\.\w+$/, ''));
      if (stems.includes(stem) || /_(alpha|fg)$/.test(stem)) continue;
      const picture = await decode(readFileSync(path.join(folder, name)));
      photos.push({ name, picture, reference: undefined });
    }
  }
  if (photos.length === 0) throw new Error(`no photos in ${folders.join(', ')}`);
  return photos;
}

async function comparePhoto(
  { name, picture: { width, height }, reference }: ComparedPhoto,
  cpu: Uint8Array,
  provider: Uint8Array,
): Promise<Compared> {
  const { mean: meanLevels, max: greatestLevel } = compareAlphas(cpu, provider);
  const errorsOf = (data: Uint8Array) =>
    measureQuickly({ data, width, height }, { data: reference ?? data, width, height });
  const errors = reference && { cpu: errorsOf(cpu), provider: errorsOf(provider) };
  return { name, meanLevels, greatestLevel, errors };
}

/** Beyond what a node takes for rounding the provider computes wrongly. @throws WrongFigures */
function requireParity(figures: ParityFigures & { readonly of: number }) {
  const { worstMeanLevels, worstPhoto } = figures;
  if (worstMeanLevels <= PARITY_MEAN_DIFFERENCE_MAX) return figures;
  const words = `${shown(worstMeanLevels)} levels of 255 at ${worstPhoto}`;
  throw new WrongFigures(`other mattes than the CPU: ${words}`, figures);
}

/** Ratios are of means over the photos with a reference, the provider's to the CPU's. */
export function summariseParity(photos: readonly Compared[]): ParityFigures {
  const [worst] = photos.toSorted((one, other) => other.meanLevels - one.meanLevels);
  if (worst === undefined) throw new Error('no photo was compared in the time of the section');
  const pairs = photos.flatMap(({ errors }) => errors ?? []);
  const ratio = (measure: Measure) =>
    mean(pairs.map(({ provider }) => provider[measure])) /
    mean(pairs.map(({ cpu }) => cpu[measure]));
  const ratios = Object.fromEntries(QUALITY_MEASURES.map(measure => [measure, ratio(measure)]));
  // Where nothing is soft, say, there is no error to be a share of.
  const known = Object.values(ratios).filter(Number.isFinite);
  return {
    photos: photos.length,
    meanLevels: mean(photos.map(({ meanLevels }) => meanLevels)),
    worstPhoto: worst.name,
    worstMeanLevels: worst.meanLevels,
    greatestLevel: Math.max(...photos.map(({ greatestLevel }) => greatestLevel)),
    withReference: pairs.length,
    ...(pairs.length > 0 && { ratios, worstQualityRatio: Math.max(...known) }),
  };
}
