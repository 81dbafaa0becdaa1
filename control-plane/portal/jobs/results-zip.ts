/**
 * The results of many jobs as one ZIP file without compression. It streams, so that neither a
 * result nor the archive is ever whole in memory.
 */

import { Readable } from 'node:stream';
import type { ViewedJob } from '@matting/core/jobs/job.ts';
import { yieldToEventLoop } from '@matting/program/event-loop.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { publicState } from '@matting/queue/job.ts';
import type { FastifyReply } from 'fastify';
import { Zip, ZipPassThrough } from 'fflate';
import { PageError, visitOf } from '../session/visit.ts';
import { fill } from '../words/words.ts';
import type { AccountJobQuestion, AccountJobs } from './account-jobs.ts';
import type { ResultServices } from './thumbnails.ts';

const ZIP_RESULTS_MAX = 500;
/** Half of what a ZIP file without 64-bit fields can hold. */
const BYTES_MAX = 2 * 1024 ** 3;
/** Bounds the search, since most jobs may have expired. A batch of 1,000 has 34 pages. */
const PAGES_MAX = 40;
const UNIX = 3;
const UNIX_MODE = 0o100644;
const STEM_LENGTH_MAX = 50;
const IMAGE_ENDING = /\.(?:png|jpe?g|jfif|webp|avif|hei[cf]|jxl|tiff?)$/i;
/** Windows forbids these names, whatever their ending. */
const RESERVED = /^(?:con|prn|aux|nul|(?:com|lpt)[\d¹²³])(?:\.|$)/i;

export interface ZipServices extends ResultServices {
  readonly accountJobs: AccountJobs;
}

interface Choice {
  readonly chosen: readonly { readonly jobId: string; readonly name: string }[];
  readonly isCut: boolean;
}

interface ZippedFile {
  readonly name: string;
  readonly modifiedAtMs: number;
  readonly pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

/**
 * @throws PageError notFound: no job of the list has a result; ContractError SERVICE_UNAVAILABLE:
 * the account uses its share of the archives
 */
export async function sendResultsZip(
  reply: FastifyReply,
  pages: AsyncIterable<PageOfJobs>,
  services: ZipServices,
): Promise<FastifyReply> {
  const { accountId } = visitOf(reply.request);
  const leave = services.accountJobs.archives.takeNow({ key: accountId });
  reply.raw.once('close', leave);
  if (reply.raw.closed) leave();
  const choice = await chooseResults(pages);
  if (choice.chosen.length === 0) throw new PageError('notFound');
  const files = filesOf(reply, choice, services);
  return reply
    .headers({
      'content-type': 'application/zip',
      'content-disposition': 'attachment; filename="cutouts.zip"',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    })
    .send(Readable.from(zipOf(files), { objectMode: false }));
}

export type PageOfJobs = readonly ViewedJob[];

export async function* pagesOfList(
  accountId: string,
  question: AccountJobQuestion,
  accountJobs: Pick<AccountJobs, 'list'>,
): AsyncGenerator<PageOfJobs> {
  const group = question.group === 'all' ? 'succeeded' : question.group;
  for (let { after } = question; ; ) {
    const { jobs, next } = await accountJobs.list(accountId, { ...question, group, after });
    yield jobs;
    if (next === undefined) return;
    after = next;
  }
}

/** Keeps only ids: the download takes long, and a result may expire meanwhile. */
export async function chooseResults(pages: AsyncIterable<PageOfJobs>): Promise<Choice> {
  const chosen: { jobId: string; name: string }[] = [];
  const used = new Set<string>();
  let bytes = 0;
  let read = 0;
  for await (const jobs of pages) {
    if (read === PAGES_MAX) return { chosen, isCut: true };
    read += 1;
    for (const job of jobs.filter(one => publicState(one) === 'succeeded')) {
      bytes += job.result?.bytes ?? 0;
      if (chosen.length === ZIP_RESULTS_MAX || bytes > BYTES_MAX) return { chosen, isCut: true };
      chosen.push({ jobId: job.id, name: unusedName(job, used) });
    }
    await yieldToEventLoop();
  }
  return { chosen, isCut: false };
}

type NamedJob = Pick<ViewedJob, 'id' | 'reference' | 'result'>;

/** Numbers names that differ only in case, which some file systems treat as equal. */
function unusedName({ id, reference, result }: NamedJob, used: Set<string>): string {
  const stem = stemOf(reference ?? id) || id;
  for (let count = 1; ; count += 1) {
    const name = `${count === 1 ? stem : `${stem} (${count})`}.${result?.format}`;
    if (used.has(name.toLowerCase())) continue;
    used.add(name.toLowerCase());
    return name;
  }
}

/** A name that every system allows, without a path to another folder. */
function stemOf(text: string): string {
  const plain = text
    .normalize('NFC')
    .replace(IMAGE_ENDING, '')
    .replaceAll(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029<>:"/\\|?*]/gu, '_');
  const short = [...plain].slice(0, STEM_LENGTH_MAX).join('');
  const stem = short.replaceAll(/^[\s.]+|[\s.]+$/g, '');
  return RESERVED.test(stem) ? `_${stem}` : stem;
}

async function* filesOf(
  reply: FastifyReply,
  { chosen, isCut }: Choice,
  { accountJobs, resultDownload, resultReaders }: ZipServices,
): AsyncGenerator<ZippedFile> {
  const { accountId, words } = visitOf(reply.request);
  const { more, gone } = words.jobs.zip;
  const missing: string[] = [];
  for (const { jobId, name } of chosen) {
    const job = (await accountJobs.find(accountId, jobId))?.job;
    if (job === undefined || publicState(job) !== 'succeeded') {
      missing.push(name);
      continue;
    }
    const file = resultDownload.fileOf(job);
    const leave = resultReaders.enter(file, () => reply.raw.destroy());
    try {
      const pieces = await file.open().catch(error => {
        if (!isGone(error)) throw error;
      });
      if (pieces) yield { name, modifiedAtMs: file.createdAtMs, pieces };
      else missing.push(name);
    } finally {
      leave();
    }
  }
  const lines = isCut ? [fill(more, { count: ZIP_RESULTS_MAX })] : [];
  if (missing.length > 0) lines.push(gone, ...missing);
  if (lines.length === 0) return;
  const pieces = [Buffer.from(`${lines.join('\r\n')}\r\n`)];
  yield { name: 'left-out.txt', modifiedAtMs: Date.now(), pieces };
}

function isGone(error: unknown): boolean {
  return error instanceof ContractError && /^RESULT_(?:EXPIRED|LOST)$/.test(error.code);
}

async function* zipOf(files: AsyncIterable<ZippedFile>): AsyncGenerator<Uint8Array> {
  const made: Uint8Array[] = [];
  const zip = new Zip((error, piece) => {
    if (error) throw error;
    made.push(piece);
  });
  for await (const { name, modifiedAtMs, pieces } of files) {
    const file = new ZipPassThrough(name);
    file.mtime = modifiedAtMs;
    // unzip reads names as UTF-8 only if the file is from Unix.
    file.os = UNIX;
    file.attrs = UNIX_MODE << 16;
    zip.add(file);
    for await (const piece of pieces) {
      file.push(piece);
      yield* made.splice(0);
    }
    file.push(new Uint8Array(0), true);
  }
  zip.end();
  yield* made;
}
