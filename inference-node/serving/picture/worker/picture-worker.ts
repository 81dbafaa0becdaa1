import { flushCompileCache } from 'node:module';
import { setPriority } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { sizeInInput } from '../../models/input-size.ts';
import type { Frame } from '../../process/frames.ts';
import { raiseOomScore } from '../../process/oom-score.ts';
import { serveParent } from '../../process/serve-parent.ts';
import type { HeifDecoder } from '../children/heif-decoder.ts';
import { type DecodedFile, decodeFile } from '../codecs/decode.ts';
import { isVipsPoisoned } from '../codecs/wasm-vips.ts';
import { chooseMattes } from '../matte/choose-mattes.ts';
import type { HintsPlane } from '../matte/hints/seeds.ts';
import type { RoleMatte } from '../matte/merge-mattes.ts';
import { createModelInput } from '../matte/model-input.ts';
import { cutPart } from '../matte/picture-part.ts';
import { createRefineInput } from '../matte/refine.ts';
import { createRunInput } from '../matte/run-input-pixels.ts';
import type {
  FromPictureWorker,
  MatteHead,
  OpenedFile,
  ToPictureWorker,
} from '../picture-protocol.ts';
import { freePixels, type RgbaPicture } from '../rgba-picture.ts';
import { decodeBackground, decodeHints } from './decode-background.ts';
import { finishPicture } from './finish.ts';
import { readMatte } from './matte-file.ts';
import { type MergedSources, mergeSources, nextCrop } from './merge-sources.ts';
import { warmUp } from './warm-up.ts';

const CAUSE_LENGTH_MAX = 500;
/** V8 has no reason to collect files and pixels, which lie outside of its heap. */
const COLLECT_AFTER_BYTES = 32 * 1024 * 1024;

/**
 * Engines go first: their threads wait for each other at every operator, so a delay of one delays
 * all. A saturated node reached 0.93 of the bare model at equal priority, 0.96 with this (512x512
 * PNGs, isnet in fp32).
 */
const PRIORITY = 10;

/** The last argument is for serveParent. */
const [heifText] = process.argv.slice(2, -1);
const heif = heifText === undefined ? undefined : (JSON.parse(heifText) as HeifDecoder);

let picture: DecodedFile | undefined;
let background: DecodedFile | undefined;
let hintsPlane: HintsPlane | undefined;
let mergedSources: MergedSources | undefined;
let bytesSinceCollection = 0;

// The codecs' threads inherit it if it is set before they start.
setPriority(PRIORITY);
raiseOomScore('pictureWorker');

/** The first frame waits until the codecs are warm. */
let served: Promise<void> = warmUp()
  .then(() => reply({ kind: 'ready' }))
  // Node saves compiled code when a process exits; this one will be killed.
  .then(flushCompileCache);

const channel = serveParent<ToPictureWorker>(frame => {
  served = served.then(() => serve(frame));
});

async function reply(message: FromPictureWorker, parts: readonly Uint8Array[] = []): Promise<void> {
  await channel.send(message, parts);
  for (const part of parts) freePixels(part);
}

async function serve(frame: Frame<ToPictureWorker>): Promise<void> {
  try {
    if (frame.head.kind === 'release') {
      await settle();
      return;
    }
    const { head, parts } = frame;
    if (head.kind === 'decode') await decode(head, parts);
    else if (head.kind === 'resample') await resample(head, parts);
    else if (head.kind === 'choose') await choose(head, parts);
    else if (head.kind === 'merge') await merge(head, parts);
    else if (head.kind === 'takeCrop') await takeCrop(head, parts);
    else await finish(head, parts);
  } catch (error) {
    forget();
    await reply(describeFailure(error));
  }
}

async function decode(
  message: Extract<ToPictureWorker, { kind: 'decode' }>,
  files: readonly Buffer[],
): Promise<void> {
  const startedMs = performance.now();
  for (const file of files) bytesSinceCollection += file.length;
  const { declared, modelInputs } = message;
  const onOpened = (of: OpenedFile) => (size: Size) => void reply({ kind: 'opened', size, of });
  // Decode the background before the image and any model: a bad one then costs the least.
  if (message.background !== undefined) {
    const { declared } = message.background;
    const options = { declared, onOpened: onOpened('background'), heif };
    background = await decodeBackground(requirePart(files, 1), options);
  }
  if (message.hints !== undefined) {
    const options = { declared: message.hints.declared, onOpened: onOpened('hints') };
    hintsPlane = await decodeHints(requirePart(files, background === undefined ? 1 : 2), options);
    bytesSinceCollection += 5 * hintsPlane.luma.length;
  }
  const options = { declared, onOpened: onOpened('image'), heif };
  const decoded = await decodeFile(requirePart(files, 0), options);
  const inputs = modelInputs.map(terms => createModelInput(decoded, sizeInInput(terms, decoded)));
  const { format, width, height, mended = background?.mended } = decoded;
  picture = decoded;
  const decodeMs = performance.now() - startedMs;
  await reply({ kind: 'decoded', format, size: { width, height }, mended, decodeMs }, inputs);
}

async function resample(
  { size, input: modelInput, part, mattes }: Extract<ToPictureWorker, { kind: 'resample' }>,
  alphas: readonly Buffer[],
): Promise<void> {
  const startedMs = performance.now();
  const seen = seenPicture(part);
  const input =
    mattes === undefined
      ? createRunInput(seen, size, modelInput)
      : createRefineInput(seen, roleMattes(mattes, alphas), size);
  for (const alpha of alphas) freePixels(alpha);
  const resampleMs = performance.now() - startedMs;
  await reply({ kind: 'resampled', resampleMs }, input === undefined ? [] : [input]);
}

async function choose(
  { mattes, further, isLast }: Extract<ToPictureWorker, { kind: 'choose' }>,
  alphas: readonly Buffer[],
): Promise<void> {
  const choice = chooseMattes(roleMattes(mattes, alphas), further, isLast);
  for (const alpha of alphas) freePixels(alpha);
  await reply({ kind: 'chosen', choice });
}

function roleMattes(heads: readonly MatteHead[], alphas: readonly Buffer[]): RoleMatte[] {
  return heads.map(({ size, role, part }, index) => {
    return { alpha: requirePart(alphas, index), ...size, role, part };
  });
}

type MattesMessage = Extract<ToPictureWorker, { kind: 'merge' | 'finish' }>;

async function sourcesOf({ mattes }: MattesMessage, parts: readonly Buffer[]) {
  if (mattes.length > 0) return { mattes: roleMattes(mattes, parts) };
  return { mattes: [], given: await readMatte(requirePart(parts, 0), requirePicture()) };
}

async function merge(message: MattesMessage, parts: readonly Buffer[]): Promise<void> {
  const startedMs = performance.now();
  const sources = { ...(await sourcesOf(message, parts)), hintsPlane };
  mergedSources = mergeSources(requirePicture(), sources, message.choices);
  for (const part of parts) freePixels(part);
  await replyCrop(mergedSources, startedMs);
}

async function takeCrop(
  { size }: Extract<ToPictureWorker, { kind: 'takeCrop' }>,
  parts: readonly Buffer[],
): Promise<void> {
  const startedMs = performance.now();
  if (mergedSources === undefined) throw new Error('a crop before the mattes were merged');
  mergedSources.hinted?.takeCrop({ data: requirePart(parts, 0), ...size });
  for (const part of parts) freePixels(part);
  await replyCrop(mergedSources, startedMs);
}

async function replyCrop(sources: MergedSources, startedMs: number): Promise<void> {
  const crop = nextCrop(sources);
  await reply({ kind: 'crop', crop, refineMs: performance.now() - startedMs });
}

async function finish(message: MattesMessage, alphas: readonly Buffer[]): Promise<void> {
  const { choices } = message;
  const picture = requirePicture();
  const { width, height } = picture;
  const input = { width, height };
  const { mattes, given } = mergedSources
    ? { mattes: [], given: undefined }
    : { given: undefined, ...(await sourcesOf(message, alphas)) };
  const onFramed = (size: Size) => {
    bytesSinceCollection += 4 * size.width * size.height;
    void reply({ kind: 'framed', size });
  };
  const extras = { given, hintsPlane, mergedSources, background, onFramed };
  const finished = await finishPicture(picture, mattes, choices, extras);
  const { file, thumbnail, matte, size, subject, timings } = finished;
  forget();
  for (const alpha of alphas) freePixels(alpha);
  const parts = [file, matte, thumbnail].filter(part => part !== undefined);
  await reply({ kind: 'finished', size, input, subject, timings }, parts);
}

function requirePicture(): DecodedFile {
  if (picture === undefined) throw new Error('nothing was decoded');
  return picture;
}

function seenPicture(part: Box | undefined): RgbaPicture {
  return part === undefined ? requirePicture() : cutPart(requirePicture(), part);
}

function requirePart(parts: readonly Buffer[], index: number): Buffer {
  const part = parts[index];
  if (part === undefined) throw new Error(`a message without its part ${index}`);
  return part;
}

function forget(): void {
  bytesSinceCollection += (picture?.rgba.byteLength ?? 0) + (background?.rgba.byteLength ?? 0);
  picture = undefined;
  background = undefined;
  hintsPlane = undefined;
  mergedSources = undefined;
}

async function settle(): Promise<void> {
  forget();
  if (bytesSinceCollection >= COLLECT_AFTER_BYTES) {
    bytesSinceCollection = 0;
    // The first wait makes the frame that ended the image unreachable; native memory is freed in
    // the second.
    await nextTurn();
    globalThis.gc?.();
    await nextTurn();
  }
  const residentBytes = process.memoryUsage.rss();
  await reply({ kind: 'settled', residentBytes, poisoned: isVipsPoisoned() });
}

function describeFailure(error: unknown): FromPictureWorker {
  if (!(error instanceof ContractError)) {
    const cause = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const detail = 'the picture worker failed';
    return { kind: 'failed', code: 'NODE_FAULT', detail, cause: cause.slice(0, CAUSE_LENGTH_MAX) };
  }
  const { code, message: detail, cause } = error;
  const text = cause instanceof Error ? cause.message : cause === undefined ? cause : String(cause);
  const line = text?.replaceAll(/\s*\n\s*/g, ' ').slice(0, CAUSE_LENGTH_MAX);
  return { kind: 'failed', code, detail, cause: line };
}
