/**
 * What a job needs of a node and what a node can do of it; what it counts in the queue, and who may
 * add to that when it is full. Nodes go by the same rules of proto/contract. Pure.
 */
import {
  ContractError,
  invalidParameter,
  unsupportedOutput,
} from '@matting/proto/contract/errors.ts';
import {
  enlargingField,
  type FrameRange,
  framePixelsUnseen,
  frameRange,
} from '@matting/proto/contract/finishing/frame.ts';
import type { Channels, Finishing, Size } from '@matting/proto/contract/finishing.ts';
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import { BACKGROUND_PIXELS_MAX, IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { countedMegapixels } from '@matting/proto/contract/picture-memory.ts';
import type { Job, JobFailure, JobInput } from '../jobs/job.ts';
import type { Selectables } from '../models/selectable.ts';

export interface NodeAbility {
  /** Of that start of the node's process. */
  readonly bootId: string;
  readonly inputFormats: ReadonlySet<InputFormat>;
  readonly outputFormats: ReadonlySet<OutputFormat>;
  readonly imagePixelsMax: number;
  /** The same for a JPEG XL input or output; 0: it takes none. */
  readonly jxlPixelsMax: number;
  /** The largest that it admits while nothing else is there, as `admittedMegapixels` counts. */
  readonly megapixelsAloneMax: number;
  /** What a job may name here, of the sums that their names stand for; absent: nothing. */
  readonly models?: Selectables;
}

interface AskedNeeds {
  /** null: the image is not there yet. */
  readonly inputFormat: InputFormat | null;
  /** As stored in the file; null where the header does not show it. */
  readonly pixels: number | null;
  readonly outputFormat: OutputFormat;
  /** Absent: a plain cut-out. */
  readonly finishing?: FinishingNeeds;
  /** The plan or model that it names; absent: the node's own plan. */
  readonly model?: string;
}

export interface JobNeeds extends AskedNeeds {
  readonly inputFormat: InputFormat;
}

interface FinishingNeeds {
  readonly steps: Finishing;
  readonly channels: Channels;
  readonly frame: FrameRange;
  /** null: none, or none yet. */
  readonly background: { readonly inputFormat: InputFormat; readonly pixels: number } | null;
}

export interface AskedOfNode {
  readonly outputFormat: OutputFormat;
  readonly channels?: Channels;
  readonly finishing?: Finishing | null | undefined;
  readonly background?: Pick<NonNullable<Job['background']>, 'input'> | null | undefined;
  readonly model?: string | null | undefined;
}

type Picture = Pick<JobInput, 'format' | 'width' | 'height'>;

export function needsOf(input: Picture, asked: AskedOfNode): JobNeeds {
  const size = sizeOf(input);
  const pixels = size === undefined ? null : size.width * size.height;
  return { inputFormat: input.format, pixels, ...askedOf(asked, size) };
}

export function needsBeforeImage(asked: AskedOfNode): AskedNeeds {
  return { inputFormat: null, pixels: null, ...askedOf(asked, undefined) };
}

function askedOf(
  { outputFormat, channels = 'rgba', finishing, background, model }: AskedOfNode,
  size: Size | undefined,
): Pick<JobNeeds, 'outputFormat' | 'finishing' | 'model'> {
  const asked = { outputFormat, ...(model ? { model } : {}) };
  if (!finishing) return asked;
  const frame = frameRange(finishing, size, { turned: true });
  const behind = behindOf(background?.input);
  return { ...asked, finishing: { steps: finishing, channels, frame, background: behind } };
}

export function sizeOf({ width, height }: Omit<Picture, 'format'>): Size | undefined {
  return width === null || height === null ? undefined : { width, height };
}

function behindOf(input: Picture | null | undefined): FinishingNeeds['background'] {
  if (!input) return null;
  const size = sizeOf(input);
  const pixels = size === undefined ? BACKGROUND_PIXELS_MAX : size.width * size.height;
  return { inputFormat: input.format, pixels };
}

/** An unknown size counts as the largest, a frame that is larger in the image's place. */
export function megapixelsOf({ pixels, finishing }: AskedNeeds): number {
  return Math.max(pixels ?? IMAGE_PIXELS_MAX, finishing?.frame.most ?? 0) / 1e6;
}

/** As the node counts what it may have at once. */
export function admittedMegapixels(needs: AskedNeeds): number {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  return countedMegapixels({
    inputFormat: inputFormat ?? undefined,
    outputFormat,
    resultKind: finishing?.channels === 'alpha' ? 'mask' : 'cutout',
    pixels: pixels ?? undefined,
    finishing: finishing && {
      framePixels: finishing.frame.most,
      background: finishing.background ?? undefined,
    },
  });
}

/** What keeps a node from a job, in the order in which it is looked at. */
const SHORTFALLS = [
  'model',
  'input-format',
  'input-size',
  'output-format',
  'output-size',
  'background',
  'memory',
] as const;
type Shortfall = (typeof SHORTFALLS)[number];

/** Undefined: it can do it, however long it waits. What is not known is given a chance. */
function shortfallOf(node: NodeAbility, needs: AskedNeeds): Shortfall | undefined {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  const { jxlPixelsMax } = node;
  if (needs.model !== undefined && !node.models?.has(needs.model)) return 'model';
  if (inputFormat !== null && !node.inputFormats.has(inputFormat)) return 'input-format';
  if (inputFormat === 'jxl' && jxlPixelsMax <= 0) return 'input-format';
  if (pixels !== null && pixels > node.imagePixelsMax) return 'input-size';
  if (inputFormat === 'jxl' && (pixels ?? 0) > jxlPixelsMax) return 'input-size';
  if (!node.outputFormats.has(outputFormat)) return 'output-format';
  if (outputFormat === 'jxl' && jxlPixelsMax <= 0) return 'output-format';
  if (outputFormat === 'jxl' && (finishing?.frame.least ?? pixels ?? 0) > jxlPixelsMax) {
    return 'output-size';
  }
  const behind = finishing?.background;
  if (behind && !node.inputFormats.has(behind.inputFormat)) return 'background';
  if (behind?.inputFormat === 'jxl' && behind.pixels > jxlPixelsMax) return 'background';
  if (inputFormat === null) return undefined;
  return admittedMegapixels(needs) > node.megapixelsAloneMax ? 'memory' : undefined;
}

export function canDo(node: NodeAbility, needs: AskedNeeds): boolean {
  return shortfallOf(node, needs) === undefined;
}

/** Wherever the subject turns out to be. */
export function canSurelyDo(node: NodeAbility, needs: JobNeeds): boolean {
  const most = needs.finishing?.frame.most ?? 0;
  return needs.outputFormat !== 'jxl' || most <= node.jxlPixelsMax;
}

// What a replica remembers of jobs between its rounds: losing it costs a detour at most.

/** Far above what meets trouble at once; those remembered longest go first. */
const MEMORIES_MAX = 10_000;
/** After claims that met refusals only, doubling: a node may report room and refuse. */
const REFUSED_WAIT_MIN_MS = 100;
/** A node gives a model its turn while it is asked for again within WANTED_MS (load-turns.ts). */
export const REFUSED_WAIT_MAX_MS = 2000;

interface JobMemory {
  readonly excludedBoots: Set<string>;
  readonly avoidedNodes: Set<string>;
  nodeFaults: number;
  readFaults: number;
  /** Claims that ended in refusals only, since the last admission. */
  refusedClaims: number;
  waitUntilMs: number;
  incapableSinceMs: number | undefined;
  failure: JobFailure | undefined;
}

export class JobMemories {
  readonly #now: () => number;
  readonly #entries = new Map<string, JobMemory>();

  constructor(now: () => number) {
    this.#now = now;
  }

  find(jobId: string): Readonly<JobMemory> | undefined {
    return this.#entries.get(jobId);
  }

  forget(jobId: string): void {
    this.#entries.delete(jobId);
  }

  nodeIncapable(jobId: string, bootId: string): void {
    this.#entry(jobId).excludedBoots.add(bootId);
  }

  nodeLost(jobId: string, nodeId: string): void {
    this.#entry(jobId).avoidedNodes.add(nodeId);
  }

  /** @returns how many attempts met a node's own fault */
  nodeFault(jobId: string, nodeId: string): number {
    const entry = this.#entry(jobId);
    entry.avoidedNodes.add(nodeId);
    entry.nodeFaults += 1;
    return entry.nodeFaults;
  }

  /** @returns how often a file of it could not be read from our storage */
  readFault(jobId: string): number {
    const entry = this.#entry(jobId);
    entry.readFaults += 1;
    return entry.readFaults;
  }

  mustFail(jobId: string, failure: JobFailure): void {
    this.#entry(jobId).failure = failure;
  }

  admitted(jobId: string): void {
    const entry = this.#entries.get(jobId);
    if (entry !== undefined) entry.refusedClaims = 0;
  }

  claimRefused(jobId: string): void {
    const entry = this.#entry(jobId);
    const waitMs = REFUSED_WAIT_MIN_MS * 2 ** entry.refusedClaims;
    entry.refusedClaims += 1;
    entry.waitUntilMs = this.#now() + Math.min(REFUSED_WAIT_MAX_MS, waitMs);
  }

  mustWait(jobId: string): boolean {
    return this.#now() < (this.#entries.get(jobId)?.waitUntilMs ?? Number.NEGATIVE_INFINITY);
  }

  /** Since when no node could do it, without a break; undefined while one can. */
  incapableSince(jobId: string, incapable: boolean): number | undefined {
    if (!incapable) {
      const entry = this.#entries.get(jobId);
      if (entry !== undefined) entry.incapableSinceMs = undefined;
      return undefined;
    }
    const entry = this.#entry(jobId);
    entry.incapableSinceMs ??= this.#now();
    return entry.incapableSinceMs;
  }

  #entry(jobId: string): JobMemory {
    const known = this.#entries.get(jobId);
    if (known !== undefined) return known;
    const entry: JobMemory = {
      excludedBoots: new Set(),
      avoidedNodes: new Set(),
      nodeFaults: 0,
      readFaults: 0,
      refusedClaims: 0,
      waitUntilMs: Number.NEGATIVE_INFINITY,
      incapableSinceMs: undefined,
      failure: undefined,
    };
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size < MEMORIES_MAX) break;
      this.#entries.delete(oldest);
    }
    this.#entries.set(jobId, entry);
    return entry;
  }
}

/**
 * What none of the nodes can do, in the words of the request's own field (docs/rest.md). Undefined:
 * some node can, there was none to ask, or nothing of the request is at fault.
 * @param refusedBy boot ids of nodes that said they cannot do this job, whatever their report says
 */
export function refusalOf(
  nodes: readonly NodeAbility[],
  needs: AskedNeeds,
  refusedBy: ReadonlySet<string> = new Set(),
): ContractError | undefined {
  let furthest = -1;
  for (const node of nodes) {
    const shortfall = shortfallOf(node, needs);
    if (shortfall === undefined && !refusedBy.has(node.bootId)) return undefined;
    const reached = shortfall === undefined ? SHORTFALLS.length : SHORTFALLS.indexOf(shortfall);
    furthest = Math.max(furthest, reached);
  }
  if (furthest < 0) return undefined;
  const shortfall = SHORTFALLS[furthest];
  return shortfall === undefined ? codecRefusal(needs) : ofShortfall(shortfall, needs);
}

const NO_NODE = 'No inference node of this service';

function ofShortfall(shortfall: Shortfall, needs: AskedNeeds): ContractError {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  switch (shortfall) {
    case 'model':
      return invalidParameter('model', `is not available: no inference node has ${needs.model}`);
    case 'input-format':
      return new ContractError('UNSUPPORTED_IMAGE_FORMAT', unreadBy(inputFormat));
    case 'input-size':
      return new ContractError(
        'IMAGE_RESOLUTION_TOO_LARGE',
        `${NO_NODE} takes ${inputFormat} images of ${pixels} pixels. Scale it down.`,
      );
    case 'output-format':
      return unsupportedOutput(`${outputFormat} is not available: no inference node writes it`);
    case 'output-size': {
      const least = finishing?.frame.least ?? pixels;
      const wrong = `${outputFormat} is not available: no inference node writes ${least} pixels of it`;
      return unsupportedOutput(wrong);
    }
    case 'background': {
      const detail = `background: ${unreadBy(finishing?.background?.inputFormat)}`;
      return new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
    }
    case 'memory':
      return memoryRefusal(needs);
  }
}

/** What an operator can do about it is said too. */
function unreadBy(format: InputFormat | null | undefined): string {
  if (format !== 'heic') return `${NO_NODE} reads ${format}. Send another format.`;
  return (
    `${NO_NODE} reads heic. Send another format. To read heic, the operator installs libheif-js ` +
    "beside the service, or Debian's libheif-examples on the nodes (MATTING_HEIF)."
  );
}

function memoryRefusal({ pixels, outputFormat, finishing }: AskedNeeds): ContractError {
  const wrong = 'no inference node has the memory for';
  const { frame, background, steps = {} } = finishing ?? {};
  const framePixels = frame?.most ?? 0;
  const ownPixels = pixels ?? IMAGE_PIXELS_MAX;
  if (background && background.pixels > Math.max(ownPixels, framePixels)) {
    return invalidParameter('background', `is too large: ${wrong} ${background.pixels} pixels`);
  }
  if (framePixels > ownPixels) {
    const field = enlargingField(steps);
    return invalidParameter(field, `is too large: ${wrong} a frame of ${framePixels} pixels`);
  }
  const detail = `The image is too large: ${wrong} ${ownPixels} pixels as ${outputFormat}.`;
  return new ContractError('IMAGE_RESOLUTION_TOO_LARGE', detail);
}

/** Every node says that it can, and none could: a codec that only some have. */
function codecRefusal({ inputFormat, outputFormat }: AskedNeeds): ContractError | undefined {
  if (outputFormat === 'jxl') {
    return unsupportedOutput('jxl is not available: no inference node writes this image in it');
  }
  const detail = `${NO_NODE} could read this image.`;
  const isOfSome = inputFormat === 'jxl' || inputFormat === 'heic';
  return isOfSome ? new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail) : undefined;
}

const LOOKS_IN_GRACE = 60;

interface AdvertisedNodesOptions {
  readonly routable: () => readonly NodeAbility[];
  readonly graceMs: number;
  readonly now: () => number;
}

/** The nodes routable within the grace: a restart of the only one with a codec refuses nothing. */
export class AdvertisedNodes {
  readonly #options: AdvertisedNodesOptions;
  readonly #startedAtMs: number;
  /** By boot, and by what may be named there, which may change while a node serves. */
  readonly #seen = new Map<
    string,
    Map<Selectables | undefined, { readonly node: NodeAbility; readonly atMs: number }>
  >();
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: AdvertisedNodesOptions) {
    this.#options = options;
    this.#startedAtMs = options.now();
  }

  changed(): void {
    const { graceMs, now } = this.#options;
    if (now() - this.#lookedAtMs >= graceMs / LOOKS_IN_GRACE) this.#look();
  }

  /** Undefined within the first grace of this replica: it cannot know yet who was there. */
  nodes(): readonly NodeAbility[] | undefined {
    const { graceMs, now } = this.#options;
    if (now() - this.#startedAtMs <= graceMs) return undefined;
    this.#look();
    return [...this.#seen.values()].flatMap(seen => [...seen.values()].map(({ node }) => node));
  }

  #look(): void {
    const { routable, graceMs, now } = this.#options;
    const nowMs = now();
    this.#lookedAtMs = nowMs;
    for (const node of routable()) {
      const seen = this.#seen.get(node.bootId) ?? new Map();
      this.#seen.set(node.bootId, seen.set(node.models, { node, atMs: nowMs }));
    }
    for (const [bootId, seen] of this.#seen) {
      for (const [models, { atMs }] of seen) if (nowMs - atMs > graceMs) seen.delete(models);
      if (seen.size === 0) this.#seen.delete(bootId);
    }
  }
}

/*
 * The bound of the queue is shared by max-min fairness (Bertsekas and Gallager, "Data Networks",
 * section 6.5.2): below it everybody is accepted; above it, only accounts that hold less than their
 * share, which is the bound divided by the accounts that have something queued.
 */

export interface AccountQueue {
  readonly jobs: number;
  /** Each job as `queuedMegapixels` counts it. */
  readonly megapixels: number;
  readonly unfetched: number;
}

/** The default: about 4,000 photos of 12, more than a CPU node does in the hour a job may queue. */
export const QUEUE_MEGAPIXELS_MAX = 50_000;
/** The least for any job: a model's run costs the same for a smaller picture. */
export const MEGAPIXELS_MIN = 1;
/** The least for a job whose image is not downloaded: about a photo of a shop. */
export const UNFETCHED_MEGAPIXELS = 4;
/** A stored image of unknown size: the contract's largest. */
export const UNKNOWN_MEGAPIXELS = 100;

/** Pixels of its frame, which count where they are more than its image's; null: never more. */
export function queuedFramePixels(
  finishing: Finishing | null,
  input: Pick<JobInput, 'width' | 'height'> | null,
): number | null {
  if (finishing === null) return null;
  if (input === null) return framePixelsUnseen(finishing) || null;
  return frameRange(finishing, sizeOf(input), { turned: true }).most;
}

/** As job-rows.ts sums it in the table. */
export function queuedMegapixels({ finishing, input }: Pick<Job, 'finishing' | 'input'>): number {
  const frame = (queuedFramePixels(finishing, input) ?? 0) / 1e6;
  if (input === null) return Math.max(UNFETCHED_MEGAPIXELS, frame);
  const size = sizeOf(input);
  if (size === undefined) return UNKNOWN_MEGAPIXELS;
  return Math.max(MEGAPIXELS_MIN, (size.width * size.height) / 1e6, frame);
}

/** Megapixels over the bound and over the account's share: a caller gets in when either is gone. */
interface Ahead {
  readonly queueExcess: number;
  readonly ownExcess: number;
  /** Jobs of `ownExcess` that may be downloads. */
  readonly unfetched: number;
  readonly accounts: number;
}

/** Undefined: the account may add a job. `byAccount` holds accounts that have something queued. */
export function aheadOf(
  accountId: string,
  byAccount: ReadonlyMap<string, AccountQueue>,
  megapixelsMax: number,
): Ahead | undefined {
  const own = byAccount.get(accountId);
  if (own === undefined) return undefined;
  let total = 0;
  for (const { megapixels } of byAccount.values()) total += megapixels;
  const accounts = byAccount.size;
  const queueExcess = total - megapixelsMax;
  const ownExcess = own.megapixels - megapixelsMax / accounts;
  if (queueExcess <= 0 || ownExcess < 0) return undefined;
  const unfetched = Math.min(own.unfetched, Math.ceil(ownExcess / UNFETCHED_MEGAPIXELS));
  return { queueExcess, ownExcess, unfetched, accounts };
}

const FETCHES_AT_ONCE = 16;
export const RETRY_AFTER_MIN_S = 5;
export const RETRY_AFTER_MAX_S = 120;
/** Nothing was finished: a fleet that starts, or stands still, and may go on at any time. */
const STANDSTILL_RETRY_AFTER_S = 15;

/**
 * When what is ahead is done at the soonest: whole seconds within the two bounds. Turns are fair,
 * so an account gets at least its part of the fleet's pace; a download that fails leaves the queue.
 * @param pace the whole fleet's; 0: nothing was finished lately
 */
export function retryAfterS(
  { queueExcess, ownExcess, unfetched, accounts }: Ahead,
  pace: { readonly megapixelsPerS: number; readonly fetchMsMax: number },
): number {
  const { megapixelsPerS, fetchMsMax } = pace;
  if (megapixelsPerS <= 0) return STANDSTILL_RETRY_AFTER_S;
  const ownPerS = megapixelsPerS / accounts;
  const fetchesS = (Math.ceil(unfetched / FETCHES_AT_ONCE) * fetchMsMax) / 1000;
  const storedExcess = Math.max(0, ownExcess - unfetched * UNFETCHED_MEGAPIXELS);
  const seconds = Math.min(
    queueExcess / megapixelsPerS,
    ownExcess / ownPerS,
    fetchesS + storedExcess / ownPerS,
  );
  return Math.min(RETRY_AFTER_MAX_S, Math.max(RETRY_AFTER_MIN_S, Math.ceil(seconds)));
}
