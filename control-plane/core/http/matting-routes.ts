import type { Readable } from 'node:stream';
import { noteJob } from '@matting/http/answer-log.ts';
import {
  acceptedAnswers,
  idempotencyKeyOf,
  type Preferences,
  parsePrefer,
} from '@matting/http/request-headers.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { isFinal } from '@matting/queue/job.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ViewedJob } from '../jobs/job.ts';
import { jobErrorOf, withJob } from '../results/job-errors.ts';
import { serverTimingOf, subjectHeaders } from '../results/job-headers.ts';
import { fileHeaders, openForReader, type ResultFile } from '../results/result-download.ts';
import { waitForEnd } from '../results/wait-for-job.ts';
import { type AcceptedAnswers, JSON_ALONE } from '../submission/matting-request.ts';
import type { Submitted } from '../submission/submit-matting.ts';
import type { AppServices } from './app-services.ts';
import { callerOf, type HeaderChecks } from './header-checks.ts';
import { correctionBodyReaderOf, mattingBodyReaderOf } from './read-matting-body.ts';

/** Most photos are done after this time. */
export const POLL_AFTER_S = 2;
/** Marks an answer about a job that had ended before this request. */
const REPLAYED = 'idempotent-replayed';

export function registerMattingRoutes(
  app: FastifyInstance,
  services: AppServices,
  checks: HeaderChecks,
  options: { readonly syncWaitMs: number },
): void {
  const routes = new MattingRoutes(services, checks, options.syncWaitMs);
  const submission = { onRequest: checks.submission };
  app.post('/v1/matting', submission, (request, reply) => routes.submitSync(request, reply));
  app.post('/v1/matting/jobs', submission, (request, reply) => routes.submitAsync(request, reply));
  app.post<{ Params: { jobId: string } }>(
    '/v1/matting/jobs/:jobId/corrections',
    submission,
    (request, reply) => routes.correct(request, reply, request.params.jobId),
  );
}

interface Submitting {
  readonly mode: 'sync' | 'async';
  readonly accepts: AcceptedAnswers;
  /** The job that this request corrects; absent: the request brings an image. */
  readonly corrects?: string;
}

class MattingRoutes {
  readonly #parts: AppServices & { readonly checks: HeaderChecks; readonly syncWaitMs: number };

  constructor(services: AppServices, checks: HeaderChecks, syncWaitMs: number) {
    this.#parts = { ...services, checks, syncWaitMs };
  }

  async submitAsync(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { job } = await this.#submit(request, reply, { mode: 'async', accepts: JSON_ALONE });
    return this.#answerWithoutWaiting(reply, job);
  }

  async submitSync(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const preferences = parsePrefer(request.headers.prefer);
    const waits = !preferences.respondAsync || preferences.waitS !== undefined;
    // Prefer decides only the wait, Accept the kind of answer.
    const accepts = acceptedAnswers(request.headers.accept);
    const mode = waits ? 'sync' : 'async';
    const submitted = await this.#submit(request, reply, { mode, accepts });
    const waitMs = Math.min((preferences.waitS ?? Infinity) * 1000, this.#parts.syncWaitMs);
    setPreferenceApplied(reply, preferences, waitMs);
    if (!waits) return this.#answerWithoutWaiting(reply, submitted.job);
    const job = await waitForEnd(this.#parts.waitForJob, submitted.job, waitMs, reply);
    if (!isFinal(job)) return this.#handOver(reply, job, { sync_timeout: true });
    const refusal = jobErrorOf(job);
    reply.headers(serverTimingOf(job));
    if (refusal !== undefined) throw refusal;
    if (accepts.prefer([job.outputFormat]) !== 'json') {
      return this.#answerPicture(reply, job, submitted.created);
    }
    if (reply.hasHeader(REPLAYED)) await this.#requireResult(job);
    reply.header('x-credits-charged', submitted.created ? '1' : '0');
    return reply.code(200).send(this.#parts.jobViews.view(job));
  }

  /** Waits only if Prefer has wait=n. Always answers like `submitAsync`. */
  async correct(request: FastifyRequest, reply: FastifyReply, corrects: string) {
    const preferences = parsePrefer(request.headers.prefer);
    const { waitS } = preferences;
    const mode = waitS === undefined ? 'async' : 'sync';
    const { job } = await this.#submit(request, reply, { mode, accepts: JSON_ALONE, corrects });
    if (waitS === undefined) return this.#answerWithoutWaiting(reply, job);
    const waitMs = Math.min(waitS * 1000, this.#parts.syncWaitMs);
    setPreferenceApplied(reply, preferences, waitMs);
    const ended = await waitForEnd(this.#parts.waitForJob, job, waitMs, reply);
    return this.#answerWithoutWaiting(reply, ended);
  }

  /** Removes the stored images unless they belong to a new job. */
  async #submit(
    request: FastifyRequest,
    reply: FastifyReply,
    { mode, accepts, corrects }: Submitting,
  ): Promise<Submitted> {
    const idempotencyKey = idempotencyKeyOf(request);
    const readerOf = corrects === undefined ? mattingBodyReaderOf : correctionBodyReaderOf;
    const readBody = readerOf(request.raw);
    const { readJob } = this.#parts;
    const of = corrects === undefined ? corrects : await readJob(callerOf(request), corrects);
    const uploads = this.#parts.uploads.beginBoth(callerOf(request).accountId, request.raw);
    try {
      wantBody(request, reply);
      const fields = await readBody(uploads);
      const recheckCaller = () => this.#parts.checks.recheckCaller(request);
      const caller = await recheckCaller();
      const { image: upload, background: backgroundUpload, hints: hintsUpload } = uploads;
      const sent = { upload, backgroundUpload, hintsUpload };
      const { submitMatting } = this.#parts;
      const submission = { caller, recheckCaller, idempotencyKey, mode, fields, ...sent };
      const submitted = await (of === undefined
        ? submitMatting.submit({ ...submission, accepts })
        : submitMatting.submitCorrection({ ...submission, corrects: of }));
      noteJob(request, submitted.job.id);
      reply.header('x-credits-charged', '0');
      if (!submitted.created && isFinal(submitted.job)) reply.header(REPLAYED, 'true');
      return submitted;
    } finally {
      await uploads.end();
    }
  }

  /** The job exists, so every error names it. */
  async #answerPicture(reply: FastifyReply, job: ViewedJob, created: boolean) {
    const { resultDownload, resultReaders, jobViews } = this.#parts;
    let file: ResultFile;
    let stream: Readable;
    try {
      file = resultDownload.fileOf(job);
      stream = await openForReader(reply, file, resultReaders);
    } catch (cause) {
      throw withJob(cause, job.id);
    }
    const { status_url, result } = jobViews.view(job);
    reply.headers({
      ...fileHeaders(file),
      ...subjectHeaders(job.result?.sight ?? null),
      'content-length': file.bytes,
      'content-location': result?.url,
      link: `<${status_url}>; rel="describedby"; type="application/json"`,
      'x-job-id': job.id,
      'x-credits-charged': created ? '1' : '0',
    });
    return reply.code(200).send(stream);
  }

  async #requireResult(job: ViewedJob): Promise<void> {
    try {
      await this.#parts.resultDownload.fileOf(job).requireThere();
    } catch (cause) {
      throw withJob(cause, job.id);
    }
  }

  #answerWithoutWaiting(reply: FastifyReply, job: ViewedJob): FastifyReply {
    if (!isFinal(job)) return this.#handOver(reply, job, {});
    return reply.headers(serverTimingOf(job)).code(200).send(this.#parts.jobViews.view(job));
  }

  #handOver(reply: FastifyReply, job: ViewedJob, extra: { sync_timeout?: true }): FastifyReply {
    const view = this.#parts.jobViews.view(job);
    reply.headers({ location: view.status_url, 'retry-after': POLL_AFTER_S });
    return reply.code(202).send({ ...view, ...extra });
  }
}

/** A wait beyond the service's limit is not named. */
function setPreferenceApplied(reply: FastifyReply, preferences: Preferences, waitMs: number): void {
  const { respondAsync, waitS } = preferences;
  const applied = [
    ...(respondAsync ? ['respond-async'] : []),
    ...(waitS !== undefined && waitS * 1000 === waitMs ? [`wait=${waitS}`] : []),
  ];
  if (applied.length > 0) reply.header('preference-applied', applied.join(', '));
}
