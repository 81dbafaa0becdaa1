/** POST /v1.0/removebg and GET /v1.0/account: what clients of remove.bg call. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { noteJob } from '../core/http/answers/answer-log.ts';
import { openForReader } from '../core/http/answers/result-file.ts';
import { serverTimingOf } from '../core/http/answers/server-timing.ts';
import { waitForEnd, withJob } from '../core/http/answers/with-job.ts';
import type { AppServices } from '../core/http/app-services.ts';
import { callerOf } from '../core/http/checks/authentication.ts';
import { wantBody } from '../core/http/connections/unread-body.ts';
import { isFinal, type Job } from '../core/jobs/job.ts';
import { refusalOf } from '../core/results/job-view.ts';
import type { RemoveBackground } from './remove-background.ts';
import { wantsJson } from './removebg-accept.ts';
import { type RemovebgAnswer, removebgHeaders, removebgJson } from './removebg-answer.ts';
import { readRemovebgBody } from './removebg-body.ts';
import type { RemovebgChecks } from './removebg-checks.ts';

import document from './removebg-openapi.json' with { type: 'json' };

/** Most photos are done by then. */
const RETRY_AFTER_S = 2;
const DOCUMENT_CACHE = 'public, max-age=300';

export interface RemovebgServices extends AppServices {
  readonly removeBackground: RemoveBackground;
}

export function registerRemovebgRoutes(
  app: FastifyInstance,
  services: RemovebgServices,
  checks: RemovebgChecks,
  options: { readonly waitMs: number; readonly baseUrl: string; readonly version: string },
): void {
  const routes = new RemovebgRoutes(services, checks, options.waitMs);
  app.post('/v1.0/removebg', { onRequest: checks.submission }, (request, reply) =>
    routes.remove(request, reply),
  );
  app.get('/v1.0/account', { onRequest: checks.account }, request => routes.account(request));
  const info = { ...document.info, version: options.version };
  const served = { ...document, info, servers: [{ url: options.baseUrl }] };
  const text = Buffer.from(JSON.stringify(served));
  app.get('/v1.0/openapi.json', async (_request, reply) =>
    reply
      .headers({ 'cache-control': DOCUMENT_CACHE, 'content-type': 'application/json' })
      .send(text),
  );
}

class RemovebgRoutes {
  readonly #services: RemovebgServices;
  readonly #checks: RemovebgChecks;
  readonly #waitMs: number;

  constructor(services: RemovebgServices, checks: RemovebgChecks, waitMs: number) {
    this.#services = services;
    this.#checks = checks;
    this.#waitMs = waitMs;
  }

  /** Exactly these keys: a client raises on one that is missing, and on one more. */
  async account(request: FastifyRequest) {
    const { available } = await this.#services.readAccount.credits(callerOf(request));
    return {
      data: {
        attributes: {
          credits: { subscription: 0, payg: available, enterprise: 0, total: available },
          api: { free_calls: 0, sizes: 'all' },
        },
      },
    };
  }

  async remove(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const submitted = await this.#submit(request, reply);
    const { waitForJob } = this.#services;
    const job = await waitForEnd(waitForJob, submitted.job, this.#waitMs, reply);
    if (!isFinal(job)) throw notYet(job);
    const refusal = refusalOf(job);
    reply.headers(serverTimingOf(job));
    if (refusal !== undefined) throw refusal;
    return await this.#answer(request, reply, { ...submitted, job });
  }

  async #submit(request: FastifyRequest, reply: FastifyReply): Promise<RemovebgAnswer> {
    const { uploads, removeBackground } = this.#services;
    const pictures = uploads.beginBoth(callerOf(request).accountId);
    try {
      wantBody(request, reply);
      const { unknown, ...fields } = await readRemovebgBody(request.raw, pictures);
      const askAgain = () => this.#checks.askAgain(request);
      const caller = await askAgain();
      const sent = { caller, askAgain, fields, uploads: pictures };
      const submitted = await removeBackground.submit(sent);
      noteJob(request, submitted.job.id);
      return { ...submitted, unknown };
    } finally {
      await Promise.all([pictures.image.abort(), pictures.background.abort()]);
    }
  }

  async #answer(request: FastifyRequest, reply: FastifyReply, answer: RemovebgAnswer) {
    const { resultDownload, resultReaders } = this.#services;
    const { job } = answer;
    try {
      const file = resultDownload.fileOf(job, answer.created ? 'download' : 'replay');
      const picture = await openForReader(reply, file, resultReaders);
      const vary = [reply.getHeader('vary'), 'accept'].filter(Boolean).join(', ');
      reply.headers({ ...removebgHeaders(answer), vary }).code(200);
      if (!wantsJson(request.headers.accept)) {
        reply.headers({ 'content-type': file.contentType, 'content-length': file.bytes });
        return reply.send(picture);
      }
      const { bytes, body } = removebgJson(job, file, picture);
      reply.headers({ 'content-type': 'application/json; charset=utf-8', 'content-length': bytes });
      return reply.send(body);
    } catch (cause) {
      throw withJob(cause, job.id);
    }
  }
}

/** The job goes on; the same request, sent again, joins it. */
function notYet({ id }: Job): ContractError {
  const detail = 'the image is still being processed; send the same request again';
  return new ContractError('SERVICE_UNAVAILABLE', detail, {
    jobId: id,
    retryAfterS: RETRY_AFTER_S,
  });
}
