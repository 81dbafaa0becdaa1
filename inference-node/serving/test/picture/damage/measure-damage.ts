/** Takes spoilt files through real picture workers, and counts what became of them. */

import { createHash } from 'node:crypto';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import { Random } from '@matting/test-support/random.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { pino } from 'pino';
import type { HeifDecoder } from '../../../picture/children/heif-decoder.ts';
import { openPicturePool } from '../../../picture/pool/open-picture-pool.ts';
import type { PicturePool } from '../../../picture/pool/picture-pool.ts';
import type { Form } from './forms.ts';

const NEVER = new AbortController().signal;
const MODEL_SIZE = { width: 8, height: 8 };
const OPAQUE = Buffer.alloc(MODEL_SIZE.width * MODEL_SIZE.height, 255);
/** A caller may get these answers for a damaged file; none is charged or to be tried again. */
const REFUSALS: readonly ErrorCode[] = [
  'PROCESSING_FAILED',
  'UNSUPPORTED_IMAGE_FORMAT',
  'IMAGE_RESOLUTION_TOO_LARGE',
];

export interface DamageOptions {
  readonly cuts: number;
  readonly flips: number;
  readonly seed: number;
  readonly workers: number;
  /** Undefined: no form is HEIC. */
  readonly heif?: HeifDecoder | undefined;
}

export interface DamageCounts {
  refused: number;
  same: number;
  different: number;
}

export interface FormDamage {
  readonly name: string;
  readonly format: InputFormat;
  readonly cuts: DamageCounts;
  readonly flips: DamageCounts;
}

export interface DamageReport {
  readonly forms: readonly FormDamage[];
  /** Cut files with other pixels, and answers outside the contract. */
  readonly violations: readonly string[];
}

interface Case {
  readonly name: string;
  readonly file: Buffer;
  readonly counts: DamageCounts;
  readonly whole: string;
  readonly mayDiffer: boolean;
}

export async function measureDamage(
  forms: readonly Form[],
  options: DamageOptions,
): Promise<DamageReport> {
  const log = pino({ level: 'silent' });
  const { workers, heif } = options;
  const pool = await openPicturePool({ workers, childEnv: CACHE_ENV, log, heif });
  const violations: string[] = [];
  try {
    const measured: FormDamage[] = [];
    const cases: Case[] = [];
    for (const [index, form] of forms.entries()) {
      const whole = await readPixels(pool, form.file);
      if (REFUSALS.some(code => code === whole)) violations.push(`${form.name} whole: ${whole}`);
      const damage = { cuts: noCounts(), flips: noCounts() };
      measured.push({ name: form.name, format: form.format, ...damage });
      cases.push(...createCases(form, whole, damage, options, index));
    }
    let next = 0;
    const runRest = async () => {
      while (next < cases.length) await runCase(pool, elementAt(cases, next++), violations);
    };
    await Promise.all(Array.from({ length: options.workers }, runRest));
    return { forms: measured, violations };
  } finally {
    await pool.close(0);
  }
}

function noCounts(): DamageCounts {
  return { refused: 0, same: 0, different: 0 };
}

function createCases(
  { name, file }: Form,
  whole: string,
  counts: { readonly cuts: DamageCounts; readonly flips: DamageCounts },
  { cuts, flips, seed }: DamageOptions,
  index: number,
): Case[] {
  const random = new Random(Math.imul(seed, 0x9e3779b1) ^ index);
  const cases: Case[] = [];
  for (let i = 0; i < cuts; i++) {
    // The last one lacks a byte; the rest are spread over the file.
    const at = i === cuts - 1 ? file.length - 1 : Math.floor((file.length * (i + 1)) / (cuts + 1));
    const cut = Buffer.from(file.subarray(0, at));
    const label = `${name} cut at ${at} of ${file.length}`;
    cases.push({ name: label, file: cut, counts: counts.cuts, whole, mayDiffer: false });
  }
  for (let i = 0; i < flips; i++) {
    const spoilt = Buffer.from(file);
    const at = random.below(file.length);
    spoilt[at] = elementAt(spoilt, at) ^ (1 + random.below(255));
    const label = `${name} spoilt at ${at} of ${file.length} (seed ${seed})`;
    cases.push({ name: label, file: spoilt, counts: counts.flips, whole, mayDiffer: true });
  }
  return cases;
}

async function runCase(
  pool: PicturePool,
  { name, file, counts, whole, mayDiffer }: Case,
  violations: string[],
): Promise<void> {
  const answer = await readPixels(pool, file);
  if (answer === whole) counts.same++;
  else if (REFUSALS.some(code => code === answer)) counts.refused++;
  else {
    counts.different++;
    const isPicture = /^[0-9a-f]{64}$/.test(answer);
    if (!isPicture || !mayDiffer) violations.push(`${name}: ${answer}`);
  }
}

async function readPixels(pool: PicturePool, file: Buffer): Promise<string> {
  const lease = await pool.acquire('sync', NEVER);
  try {
    await lease.decode({ file, declared: undefined, modelInputs: [MODEL_SIZE] }, NEVER);
    const result = await lease.finish(
      {
        mattes: [{ alpha: OPAQUE, size: MODEL_SIZE, role: 'subject' }],
        outputFormat: 'png',
        resultKind: 'cutout',
        refinement: false,
        foregroundEstimation: false,
      },
      NEVER,
    );
    return createHash('sha256').update(result.file).digest('hex');
  } catch (error) {
    return error instanceof ContractError ? error.code : `no contract error: ${error}`;
  } finally {
    lease.release();
  }
}

/** Share of undetected damage among the spoilt files that were not decoded unchanged. */
export function undetectedShare(forms: readonly FormDamage[]): number {
  const refused = forms.reduce((sum, { flips }) => sum + flips.refused, 0);
  const different = forms.reduce((sum, { flips }) => sum + flips.different, 0);
  return different / Math.max(1, refused + different);
}
