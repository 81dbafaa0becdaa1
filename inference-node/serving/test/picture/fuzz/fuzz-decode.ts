/** Feeds hostile files to real picture workers; any answer outside the contract is reported. */

import { readFileSync } from 'node:fs';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { Random } from '@matting/test-support/random.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { pino } from 'pino';
import { budgetFor, RESIDENT_BYTES_BUDGET, WALL_MS_BUDGET } from '../../../picture/budgets.ts';
import { findHeifDecoder } from '../../../picture/children/find-heif-decoder.ts';
import { openPicturePool } from '../../../picture/pool/open-picture-pool.ts';
import type { PictureLease, PicturePool } from '../../../picture/pool/picture-pool.ts';
import { hasHeifEnc } from '../codecs/heic-files.ts';
import { createBombs } from './bombs.ts';
import { mutate } from './mutants.ts';
import { createSeedFiles, type SeedFile } from './seed-files.ts';

/** Answers that a caller may get for an image. */
const LAWFUL_CODES: readonly ErrorCode[] = [
  'UNSUPPORTED_IMAGE_FORMAT',
  'IMAGE_RESOLUTION_TOO_LARGE',
  'PROCESSING_FAILED',
];
const MODEL_SIZE = { width: 32, height: 32 };
const ALPHA = Buffer.alloc(MODEL_SIZE.width * MODEL_SIZE.height, 200);
/** A picture that came out is also encoded, if it is no larger: the codec of its result is next. */
const FINISH_PIXELS_MAX = 1_000_000;
const NEVER = new AbortController().signal;
/** The time from one reading of a busy worker's use to the end of the next. */
const OVERSHOOT_MS = 5_000;
const MEGAPIXELS_MAX = IMAGE_PIXELS_MAX / 1e6;

export interface FuzzOptions {
  readonly count: number;
  readonly seed: number;
  readonly workers: number;
}

export interface FuzzSummary {
  readonly files: number;
  readonly answers: Readonly<Record<string, number>>;
  readonly violations: readonly string[];
  readonly slowestMs: number;
  readonly slowestName: string;
  readonly peakBytes: number;
  readonly workersKilled: number;
}

export async function fuzzDecode({ count, seed, workers }: FuzzOptions): Promise<FuzzSummary> {
  const { decoder: heif } = await findHeifDecoder(undefined);
  const isUnread = isNotTested(heif === undefined && 'hostile HEIC: no decoder is installed');
  const isUnwritten = isNotTested(!hasHeifEnc && 'mutants of HEIC: heif-enc is not installed');
  const seeds = await createSeedFiles(!isUnread && !isUnwritten);
  const bombs = await createBombs(!isUnread);
  const log = pino({ level: 'silent' });
  const pool = await openPicturePool({ workers, childEnv: CACHE_ENV, log, heif });
  const run = new Run(pool);
  try {
    // The seeds must be whole, or the mutants show nothing.
    for (const { name, file } of seeds) await run.feed({ name, file }, true);
    let next = 0;
    const feedRest = async () => {
      while (next < count) {
        const index = next++;
        await run.feed(bombs[index] ?? createMutant(seeds, seed, index), false);
      }
    };
    await Promise.all(Array.from({ length: workers }, feedRest));
    return run.summary();
  } finally {
    await pool.close(0);
  }
}

/** Makes each mutant from its own number, so that a single one can be made again. */
function createMutant(seeds: readonly SeedFile[], seed: number, index: number): SeedFile {
  const random = new Random(Math.imul(seed, 0x9e3779b1) ^ index);
  const { name, file } = random.pick(seeds);
  const mutant = mutate(file, random.pick(seeds).file, random);
  return { name: `mutant ${index} of ${name} (seed ${seed})`, file: mutant };
}

class Run {
  readonly #pool: PicturePool;
  readonly #answers = new Map<string, number>();
  readonly #violations: string[] = [];
  #slowest = { ms: 0, name: '' };
  #peakBytes = 0;

  constructor(pool: PicturePool) {
    this.#pool = pool;
  }

  async feed({ name, file }: SeedFile, mustBePicture: boolean): Promise<void> {
    const lease = await this.#pool.acquire('sync', NEVER);
    const startedMs = performance.now();
    let answer: string;
    try {
      answer = await takeThrough(lease, file);
    } catch (error) {
      answer = error instanceof ContractError ? error.code : `no contract error: ${error}`;
    }
    const ms = performance.now() - startedMs;
    this.#peakBytes = Math.max(this.#peakBytes, ...this.#pool.processes().map(readPeakBytes));
    lease.release();
    this.#note(name, answer, ms, mustBePicture);
  }

  #note(name: string, answer: string, ms: number, mustBePicture: boolean): void {
    this.#answers.set(answer, (this.#answers.get(answer) ?? 0) + 1);
    if (ms > this.#slowest.ms) this.#slowest = { ms, name };
    const isLawful = answer === 'picture' || LAWFUL_CODES.some(code => code === answer);
    if (!isLawful || (mustBePicture && answer !== 'picture')) {
      this.#violations.push(`${name}: ${answer}`);
    }
    if (ms > budgetFor(WALL_MS_BUDGET, MEGAPIXELS_MAX) + OVERSHOOT_MS) {
      this.#violations.push(`${name}: took ${Math.round(ms)} ms`);
    }
  }

  summary(): FuzzSummary {
    const { image, time_budget, memory_budget, stalled } = this.#pool.ends();
    const peakMax = budgetFor(RESIDENT_BYTES_BUDGET, MEGAPIXELS_MAX);
    if (this.#peakBytes > peakMax) {
      this.#violations.push(`a worker took ${this.#peakBytes} bytes`);
    }
    return {
      files: [...this.#answers.values()].reduce((sum, times) => sum + times, 0),
      answers: Object.fromEntries(this.#answers),
      violations: this.#violations,
      slowestMs: Math.round(this.#slowest.ms),
      slowestName: this.#slowest.name,
      peakBytes: this.#peakBytes,
      workersKilled: image + time_budget + memory_budget + stalled,
    };
  }
}

async function takeThrough(lease: PictureLease, file: Buffer): Promise<string> {
  const request = { file, declared: undefined, modelInputs: [MODEL_SIZE] };
  const { width, height } = await lease.decode(request, NEVER);
  if (width * height > FINISH_PIXELS_MAX) return 'picture';
  const finished = await lease.finish(
    {
      mattes: [{ alpha: ALPHA, size: MODEL_SIZE, role: 'subject' }],
      outputFormat: 'png',
      resultKind: 'cutout',
      refinement: true,
      foregroundEstimation: true,
    },
    NEVER,
  );
  const isSame = finished.width === width && finished.height === height;
  return isSame ? 'picture' : `a result of ${finished.width}x${finished.height}`;
}

function readPeakBytes({ pid }: { readonly pid: number }): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) * 1024;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return 0;
    throw error;
  }
}
