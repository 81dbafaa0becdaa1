/**
 * POST /v1.0/removebg and GET /v1.0/account, which clients of remove.bg call: their checks made from
 * headers alone, and their answers, the picture or JSON with the picture in it.
 */
import { Readable } from 'node:stream';
import type { AppServices } from '@matting/core/http/app-services.ts';
import {
  askingAgain,
  bearerTokenOf,
  type Check,
  callerOf,
  holdSlot,
  requireApiKey,
  requireRate,
  TOKEN_LENGTH_MAX,
  type ToldRate,
} from '@matting/core/http/header-checks.ts';
import { isFinal, type Job } from '@matting/core/jobs/job.ts';
import { refusalOf, serverTimingOf, waitForEnd, withJob } from '@matting/core/results/job-view.ts';
import { openForReader, type ResultFile } from '@matting/core/results/result-download.ts';
import { noteJob, pathOf } from '@matting/http/answers.ts';
import { wantBody } from '@matting/http/bodies.ts';
import type { Connections } from '@matting/http/connections.ts';
import { headerValues } from '@matting/http/request-headers.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Box } from '@matting/proto/contract/finishing.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import Negotiator from 'negotiator';
import { readRemovebgBody, requireRemovebgBody } from './removebg-body.ts';
import { isRemovebgRequest } from './removebg-errors.ts';
import document from './removebg-openapi.json' with { type: 'json' };
import type { RemoveBackground } from './removebg-request.ts';

/** Browsers send 150 characters; a longer header is ignored. */
const ACCEPT_LENGTH_MAX = 1000;
const PICTURES = ['image/png', 'image/jpeg', 'image/webp', 'application/zip'];

/**
 * JSON only where the client asks for that and nothing else will do: HTTP libraries send
 * `application/json, text/plain, *\/*` of themselves, and write the answer to a file.
 * @param header all Accept headers of the request, joined by commas
 */
function wantsJson(header: string | undefined): boolean {
  if (header === undefined || header.length > ACCEPT_LENGTH_MAX) return false;
  const negotiator = new Negotiator({ headers: { accept: header } });
  if (negotiator.mediaTypes().includes('*/*')) return false;
  const [best] = negotiator.mediaTypes(['application/json', ...PICTURES]);
  return best === 'application/json';
}

/** Of the result, in pixels, where no subject was seen. */
const NOWHERE: Box = { top: 0, left: 0, width: 0, height: 0 };

interface RemovebgAnswer {
  readonly job: Job;
  /** Whether this request made the job, and so is charged for it. */
  readonly created: boolean;
  readonly saysType: boolean;
  readonly unknown: readonly string[];
}

function removebgHeaders(answer: RemovebgAnswer): Record<string, string> {
  const { job, created, saysType, unknown } = answer;
  const { result } = job;
  if (result === null) throw new Error(`job ${job.id} succeeded without a result`);
  const largest = largestOf(job);
  const foreground = foregroundOf(job);
  return {
    'x-width': String(result.width),
    'x-height': String(result.height),
    'x-max-width': String(largest.width),
    'x-max-height': String(largest.height),
    ...(saysType ? { 'x-type': 'other' } : {}),
    ...(foreground === undefined
      ? {}
      : {
          'x-foreground-top': String(foreground.top),
          'x-foreground-left': String(foreground.left),
          'x-foreground-width': String(foreground.width),
          'x-foreground-height': String(foreground.height),
        }),
    'x-credits-charged': created ? '1' : '0',
    'x-job-id': job.id,
    ...(unknown.length === 0 ? {} : { 'x-ignored-fields': unknown.join(', ') }),
  };
}

/** The size of the result without a bound of `size`, as far as the job knows it. */
function largestOf({ result, finishing }: Job): { width: number; height: number } {
  const isCut = finishing?.crop !== undefined || finishing?.sizeMaxMegapixels === undefined;
  const sight = result?.sight;
  if (isCut || !sight) return { width: result?.width ?? 0, height: result?.height ?? 0 };
  return { width: sight.inputWidth, height: sight.inputHeight };
}

function foregroundOf({ result }: Job): Box | undefined {
  if (!result?.sight) return undefined;
  return result.sight.subject?.resultBox ?? NOWHERE;
}

/** The same as JSON: a stream of `bytes` bytes, made while the file is read. */
function removebgJson(
  job: Job,
  file: Pick<ResultFile, 'bytes'>,
  picture: Readable,
): { readonly bytes: number; readonly body: Readable } {
  const { top, left, width, height } = foregroundOf(job) ?? NOWHERE;
  const start = '{"data":{"result_b64":"';
  const end =
    `","foreground_top":${top},"foreground_left":${left},` +
    `"foreground_width":${width},"foreground_height":${height}}}`;
  const body = Readable.from(base64Json(start, picture, end), { objectMode: false });
  // A reader that is gone before the first piece leaves a generator that never began.
  body.once('close', () => picture.destroy());
  return { bytes: start.length + base64Length(file.bytes) + end.length, body };
}

async function* base64Json(start: string, picture: Readable, end: string): AsyncGenerator<string> {
  yield start;
  let left: Buffer = Buffer.alloc(0);
  for await (const piece of picture as AsyncIterable<Buffer>) {
    const bytes = left.length === 0 ? piece : Buffer.concat([left, piece]);
    const whole = bytes.length - (bytes.length % 3);
    left = Buffer.from(bytes.subarray(whole));
    yield bytes.toString('base64', 0, whole);
  }
  yield `${left.toString('base64')}${end}`;
}

function base64Length(bytes: number): number {
  return 4 * Math.ceil(bytes / 3);
}

const METHODS = 'GET, POST, OPTIONS';
const REQUEST_HEADERS = 'X-Api-Key, Authorization, Content-Type, Accept';
const ANSWER_HEADERS = [
  ...['X-Width', 'X-Height', 'X-Max-Width', 'X-Max-Height', 'X-Type', 'X-Credits-Charged'],
  ...['X-Foreground-Top', 'X-Foreground-Left', 'X-Foreground-Width', 'X-Foreground-Height'],
  ...['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'Retry-After'],
  ...['X-Ignored-Fields', 'X-Job-ID', 'X-Request-ID'],
].join(', ');
const PREFLIGHT_MAX_AGE_S = 600;

/**
 * Cross-origin requests (the Fetch standard), only where the operator allows an origin: a key in a
 * page can be read by everyone who opens it.
 * @param origins as a browser sends them; `*` is every one; none: nothing is added
 */
export function allowOrigins(app: FastifyInstance, origins: readonly string[]): void {
  if (origins.length === 0) return;
  app.addHook('onRequest', (request, reply, done) => {
    if (isRemovebgRequest(pathOf(request))) setOriginHeaders(request, reply, origins);
    done();
  });
  for (const path of ['/v1.0/removebg', '/v1.0/account']) {
    app.options(path, (_request, reply) =>
      reply
        .headers({
          'access-control-allow-methods': METHODS,
          'access-control-allow-headers': REQUEST_HEADERS,
          'access-control-max-age': String(PREFLIGHT_MAX_AGE_S),
        })
        .code(204)
        .send(),
    );
  }
}

function setOriginHeaders(
  request: FastifyRequest,
  reply: FastifyReply,
  origins: readonly string[],
): void {
  reply.header('access-control-expose-headers', ANSWER_HEADERS);
  if (origins.includes('*')) {
    reply.header('access-control-allow-origin', '*');
    return;
  }
  reply.header('vary', 'origin');
  const [origin, ...more] = headerValues(request.raw, 'origin');
  if (origin === undefined || more.length > 0 || !origins.includes(origin)) return;
  reply.header('access-control-allow-origin', origin);
}

/** Most photos are done by then. */
const RETRY_AFTER_S = 2;
const DOCUMENT_CACHE = 'public, max-age=300';

interface RemovebgServices extends AppServices {
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

interface RemovebgChecks {
  readonly submission: Check[];
  readonly account: Check[];
  /** For the time after the body was read: whose key it is, where that of its headers may still. */
  readonly askAgain: ReturnType<typeof askingAgain>;
}

export function createRemovebgChecks(
  services: AppServices,
  connections: Connections,
): RemovebgChecks {
  const { rateLimits } = services;
  const apiKey = requireApiKey(services, 'submit', requireKey);
  return {
    submission: [
      apiKey,
      requireRate(rateLimits, 'submissions', tellRate),
      requireRemovebgBody,
      holdSlot(connections),
    ],
    account: [
      requireApiKey(services, 'account', requireKey),
      requireRate(rateLimits, 'reads', tellRate),
    ],
    askAgain: askingAgain(apiKey),
  };
}

/**
 * X-Api-Key, else Authorization: Bearer. Where the first is there the second belongs to something
 * before us, and is not read.
 * @throws ContractError MISSING_API_KEY, INVALID_API_KEY
 */
function requireKey(request: FastifyRequest): string {
  const [key, ...more] = headerValues(request.raw, 'x-api-key').map(value => value.trim());
  if (more.length > 0) {
    throw new ContractError('INVALID_API_KEY', 'the X-Api-Key header is given more than once');
  }
  if (key !== undefined && key.length > TOKEN_LENGTH_MAX) {
    throw new ContractError('INVALID_API_KEY', 'the API key is unknown or revoked');
  }
  if (key) return key;
  if (headerValues(request.raw, 'authorization').length > 0) return bearerTokenOf(request);
  throw new ContractError('MISSING_API_KEY', 'send the API key as X-Api-Key');
}

/** One rate can be told: the first that refuses, else the one with least left. */
function tellRate([latest, before]: readonly ToldRate[], reply: FastifyReply): void {
  if (latest === undefined) return;
  const { allowed, limit, remaining, resetS } = latest;
  if (allowed && before !== undefined && remaining >= before.remaining) return;
  reply.headers({
    'x-ratelimit-limit': String(limit),
    'x-ratelimit-remaining': String(remaining),
    'x-ratelimit-reset': String(Math.ceil(Date.now() / 1000) + resetS),
  });
}
