import { requireFormBody } from '@matting/compat/picture-form.ts';
import { createPictureChecks, PictureRoute } from '@matting/compat/picture-route.ts';
import { renaming, sendRefusal } from '@matting/compat/refusals.ts';
import { apiKeyOf } from '@matting/core/http/header-checks.ts';
import type { HttpInterface } from '@matting/core/http/public-app.ts';
import type { CoreServices, CoreStores } from '@matting/core/package.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import { headerValues } from '@matting/http/request-headers.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyRequest } from 'fastify';
import { NO_KEY, requireLocalProgram, standingIn } from './local-programs.ts';
import {
  isMissingSource,
  REMBG_FIELDS,
  type RembgBody,
  readRembg,
  rembgRequestOf,
} from './rembg-request.ts';

const PATH = '/compat/rembg/';

interface RembgOptions extends OutgoingPolicy {
  readonly syncWaitMs: number;
  readonly trustedProxies: readonly string[];
  readonly baseUrl: string;
  readonly standInKeyId: string | undefined;
}

export function rembgInterface(
  services: CoreServices,
  { apiKeys }: Pick<CoreStores, 'apiKeys'>,
  options: RembgOptions,
): HttpInterface {
  const { standInKeyId, syncWaitMs: waitMs } = options;
  const tokenOf = (request: FastifyRequest) => {
    const showsKey = ['x-api-key', 'authorization'].some(
      name => headerValues(request.raw, name).length > 0,
    );
    if (showsKey || standInKeyId === undefined) return apiKeyOf(request);
    requireLocalProgram(request, options);
    return NO_KEY;
  };
  const authenticator =
    standInKeyId === undefined
      ? services.authenticator
      : standingIn(services.authenticator, apiKeys, standInKeyId);
  const offered = () => services.models.list().models.map(({ name }) => name);
  return {
    register(app, { connections }) {
      const route = { namespace: 'rembg', waitMs, read: readRembg };
      const parse = (body: RembgBody) => rembgRequestOf(body, offered(), options);
      for (const method of ['GET', 'POST'] as const) {
        const checks = createPictureChecks({ ...services, authenticator }, connections, {
          tokenOf,
          ...(method === 'POST' && { body: requireFormBody(REMBG_FIELDS) }),
        });
        const { answer: handler } = new PictureRoute(services, checks, { ...route, parse: parse });
        const { submission: onRequest } = checks;
        // A HEAD request would make a picture and charge for it.
        app.route({ method, url: `${PATH}api/remove`, onRequest, handler, exposeHeadRoute: false });
      }
    },
    errorWriterOf: (_request, path) =>
      path.startsWith(PATH)
        ? (error, { method }, reply) => {
            const refusal = rembgErrorOf(error, method === 'POST' ? 'body' : 'query');
            if (refusal.status === 401) reply.header('www-authenticate', 'Bearer');
            sendRefusal(reply, error, refusal);
          }
        : undefined,
    longestWaitMs: waitMs,
  };
}

const namesHere = renaming({ image_url: 'url', image_base64: 'file of a POST' });

function rembgErrorOf(error: ContractError, location: 'body' | 'query') {
  const { code, retryable, spec } = error;
  const [wrong] = error.fieldErrors;
  const isMissing = isMissingSource(error);
  if (wrong !== undefined && (isMissing || code === 'INVALID_PARAMETER')) {
    const type = isMissing ? 'missing' : 'value_error';
    const detail = [{ type, loc: [location, wrong.field], msg: wrong.detail }];
    return { status: 422, body: { detail } };
  }
  const status = code === 'PROCESSING_FAILED' && retryable ? 503 : spec.http;
  return { status, body: { detail: namesHere(error.message) } };
}
