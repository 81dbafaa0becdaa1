import {
  createPictureChecks,
  type PicturedJob,
  type PictureInterface,
  PictureRoute,
} from '@matting/compat/picture-route.ts';
import {
  apiKeyOf,
  callerOf,
  type NamedRate,
  requireApiKey,
  requireRate,
} from '@matting/core/http/header-checks.ts';
import type { HttpContext } from '@matting/core/http/public-app.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { LIGHT } from '@matting/http/answer-shares.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import { headerValues } from '@matting/http/request-headers.ts';
import { pathOf } from '@matting/http/request-path.ts';
import type { Box } from '@matting/proto/contract/finishing.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { readRemovebgBody, requireRemovebgBody } from './removebg-body.ts';
import { isRemovebgRequest } from './removebg-errors.ts';
import document from './removebg-openapi.json' with { type: 'json' };
import { type RemovebgPictureRequest, removebgRequestOf } from './removebg-request.ts';

const NOWHERE: Box = { top: 0, left: 0, width: 0, height: 0 };

function headersOf(
  job: PicturedJob,
  { namesType }: RemovebgPictureRequest,
): Record<string, string> {
  const { result } = job;
  if (result === null) throw new Error(`job ${job.id} succeeded without a result`);
  const largest = largestOf(job);
  const foreground = foregroundOf(job);
  return {
    'x-width': String(result.width),
    'x-height': String(result.height),
    'x-max-width': String(largest.width),
    'x-max-height': String(largest.height),
    ...(namesType ? { 'x-type': 'other' } : {}),
    ...(foreground === undefined
      ? {}
      : {
          'x-foreground-top': String(foreground.top),
          'x-foreground-left': String(foreground.left),
          'x-foreground-width': String(foreground.width),
          'x-foreground-height': String(foreground.height),
        }),
  };
}

/** The size that the result would have without `size`, as far as the job knows it. */
function largestOf({ result, finishing }: PicturedJob): { width: number; height: number } {
  const isCut = finishing?.crop !== undefined || finishing?.sizeMaxMegapixels === undefined;
  const sight = result?.sight;
  if (isCut || !sight) return { width: result?.width ?? 0, height: result?.height ?? 0 };
  return { width: sight.inputWidth, height: sight.inputHeight };
}

function foregroundOf({ result }: PicturedJob): Box | undefined {
  if (!result?.sight) return undefined;
  return result.sight.subject?.resultBox ?? NOWHERE;
}

function jsonOf(job: PicturedJob) {
  const { top, left, width, height } = foregroundOf(job) ?? NOWHERE;
  const end =
    `","foreground_top":${top},"foreground_left":${left},` +
    `"foreground_width":${width},"foreground_height":${height}}}`;
  return ['{"data":{"result_b64":"', end] as const;
}

/** Includes methods that the interface refuses, so that a page can read the refusal. */
const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS';
const REQUEST_HEADERS = 'X-Api-Key, Authorization, Content-Type, Accept, *';
const ANSWER_HEADERS = [
  ...['X-Width', 'X-Height', 'X-Max-Width', 'X-Max-Height', 'X-Type', 'X-Credits-Charged'],
  ...['X-Foreground-Top', 'X-Foreground-Left', 'X-Foreground-Width', 'X-Foreground-Height'],
  ...['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'Retry-After'],
  ...['X-Ignored-Fields', 'X-Job-ID', 'X-Request-ID'],
].join(', ');
const PREFLIGHT_MAX_AGE_S = 600;

/**
 * Cross-origin requests (the Fetch standard). Off by default, since everyone who opens a page can
 * read a key in it.
 * @param origins as browsers send them; `*` allows all
 */
export function allowOrigins(app: FastifyInstance, origins: readonly string[]): void {
  if (origins.length === 0) return;
  // Refusals before any route need the headers too, or the page sees only a network error.
  app.addHook('onSend', (request, reply, payload, done) => {
    if (isRemovebgRequest(pathOf(request))) setOriginHeaders(request, reply, origins);
    done(null, payload);
  });
  for (const path of ['/v1.0/removebg', '/v1.0/account', '/v1.0/*']) {
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
  reply.header('vary', [reply.getHeader('vary'), 'origin'].filter(Boolean).join(', '));
  const [origin, ...more] = headerValues(request.raw, 'origin');
  if (origin === undefined || more.length > 0 || !origins.includes(origin)) return;
  reply.header('access-control-allow-origin', origin);
}

const DOCUMENT_CACHE = 'public, max-age=300';

interface RemovebgRoutesOptions {
  readonly waitMs: number;
  readonly baseUrl: string;
  readonly version: string;
  readonly policy: OutgoingPolicy;
}

export function registerRemovebgRoutes(
  app: FastifyInstance,
  services: CoreServices,
  { connections }: Pick<HttpContext, 'connections'>,
  { waitMs, policy, ...about }: RemovebgRoutesOptions,
): void {
  const checks = createPictureChecks(services, connections, {
    body: requireRemovebgBody,
    writeRate: writeRate,
  });
  const removing: PictureInterface<
    Awaited<ReturnType<typeof readRemovebgBody>>,
    RemovebgPictureRequest
  > = {
    namespace: 'removebg',
    waitMs,
    read: readRemovebgBody,
    parse: body => removebgRequestOf(body, policy),
    headersOf,
    jsonOf,
  };
  const { answer } = new PictureRoute(services, checks, removing);
  app.post('/v1.0/removebg', { onRequest: checks.submission }, answer);
  registerAccount(app, services);
  registerDocument(app, about);
}

/** Clients fail on a missing or an additional key, so the answer has only those of remove.bg. */
function registerAccount(app: FastifyInstance, services: CoreServices): void {
  const { readAccount, rateLimits } = services;
  const onRequest = [
    requireApiKey(services, 'account', apiKeyOf),
    requireRate(rateLimits, 'reads', writeRate),
  ];
  app.get('/v1.0/account', { onRequest, config: { weight: LIGHT } }, async request => {
    const available = await readAccount.spendable(callerOf(request));
    return {
      data: {
        attributes: {
          credits: { subscription: 0, payg: available, enterprise: 0, total: available },
          api: { free_calls: 0, sizes: 'all' },
        },
      },
    };
  });
}

function registerDocument(
  app: FastifyInstance,
  { version, baseUrl }: Pick<RemovebgRoutesOptions, 'version' | 'baseUrl'>,
): void {
  const served = { ...document, info: { ...document.info, version }, servers: [{ url: baseUrl }] };
  const text = Buffer.from(JSON.stringify(served));
  app.get('/v1.0/openapi.json', async (_request, reply) =>
    reply
      .headers({ 'cache-control': DOCUMENT_CACHE, 'content-type': 'application/json' })
      .send(text),
  );
}

/** An answer names one rate: the first that refuses, else the one with the least left. */
function writeRate([latest, before]: readonly NamedRate[], reply: FastifyReply): void {
  if (latest === undefined) return;
  const { allowed, limit, remaining, resetS } = latest;
  if (allowed && before !== undefined && remaining >= before.remaining) return;
  reply.headers({
    'x-ratelimit-limit': String(limit),
    'x-ratelimit-remaining': String(remaining),
    'x-ratelimit-reset': String(Math.ceil(Date.now() / 1000) + resetS),
  });
}
