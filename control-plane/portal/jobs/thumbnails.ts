/** Thumbnails of results, for people who may see results. Without one, a page shows an icon. */

import type { JobOutcome } from '@matting/core/jobs/job-outcome.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { judgeConditions } from '@matting/http/request-headers.ts';
import { type JobStatus, publicState } from '@matting/queue/job.ts';
import type { FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import { icon } from '../page/icons.ts';
import { phrase, time } from '../page/times.ts';
import { may } from '../session/roles.ts';
import { PageError, type Visit } from '../session/visit.ts';

export const JOBS_PATH = `${ACCOUNT_PATH}/jobs`;

export interface ResultServices {
  readonly resultDownload: CoreServices['resultDownload'];
  readonly resultReaders: CoreServices['resultReaders'];
}

type EndedJob = JobStatus & JobOutcome;

export function hasThumbnail({ role }: Pick<Visit, 'role'>, job: EndedJob): boolean {
  const isThere = publicState(job) === 'succeeded' && (job.result?.thumbnailBytes ?? null) !== null;
  return isThere && may(role, 'results.read');
}

export function thumbnail(visit: Visit, job: EndedJob, alt: string): VNode {
  if (!hasThumbnail(visit, job)) return html`<span class="thumbnail">${icon('picture')}</span>`;
  return html`<span class="thumbnail chequered"><img src=${`${JOBS_PATH}/${job.id}/thumbnail`}
    alt=${alt} loading="lazy" decoding="async" /></span>`;
}

/** Links to jobs by their pictures. Null: the role sees no results. */
export function thumbnailStrip(visit: Visit, jobs: readonly EndedJob[]): Child {
  const { role, words, formats } = visit;
  if (jobs.length === 0 || !may(role, 'results.read')) return null;
  return html`<ul class="strip">${jobs.map(job => {
    const name = phrase(words.jobs.thumbnail, { time: time(job.createdAtMs, formats.dateTime) });
    return html`<li><a href=${`${JOBS_PATH}/${job.id}`}>${thumbnail(visit, job, '')}
      <span class="silent">${name}</span></a></li>`;
  })}</ul>`;
}

/** The picture is a stranger's, so browsers must never run it as a page of this origin. */
export const RESULT_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; sandbox",
  'cross-origin-resource-policy': 'same-origin',
} as const;

/** How long a browser keeps a thumbnail, unless the result expires earlier. */
const CACHED_S_MAX = 600;

/** @throws PageError notFound: there is none; ContractError RATE_LIMITED, SERVICE_UNAVAILABLE */
export async function sendThumbnailOf(
  reply: FastifyReply,
  job: EndedJob,
  { resultDownload, resultReaders }: ResultServices,
): Promise<FastifyReply> {
  const { result, expiresAtMs, readAtMs, finishedAtMs } = job;
  if (result === null || publicState(job) !== 'succeeded') throw new PageError('notFound');
  const etag = `"${result.sha256}-thumbnail"`;
  const maxAgeS = Math.min(CACHED_S_MAX, Math.floor(((expiresAtMs ?? 0) - readAtMs) / 1000));
  const cached = { etag, 'cache-control': `private, max-age=${Math.max(0, maxAgeS)}` };
  const validators = { etag, modifiedAtMs: finishedAtMs ?? 0 };
  const isSame = judgeConditions(reply.request.headers, validators) === 'not-modified';
  if (isSame && result.thumbnailBytes !== null) return reply.code(304).headers(cached).send();
  const leave = resultReaders.enter({ jobId: job.id, accountId: job.accountId });
  const webp = await resultDownload.readThumbnail(job).finally(leave);
  if (webp === undefined) throw new PageError('notFound');
  const headers = { ...RESULT_HEADERS, ...cached, 'content-type': 'image/webp' };
  return reply.headers(headers).send(webp);
}
