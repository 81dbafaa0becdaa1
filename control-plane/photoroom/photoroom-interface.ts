import { readFormBody, requireFormBody } from '@matting/compat/picture-form.ts';
import { createPictureChecks, PictureRoute } from '@matting/compat/picture-route.ts';
import { renaming, sendRefusal } from '@matting/compat/refusals.ts';
import type { HttpInterface } from '@matting/core/http/public-app.ts';
import type { CoreServices } from '@matting/core/package.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { isMissingImage, PHOTOROOM_FIELDS, photoroomRequestOf } from './photoroom-request.ts';

const PATH = '/compat/photoroom/';

export function photoroomInterface(services: CoreServices, waitMs: number): HttpInterface {
  return {
    register(app, { connections }) {
      const body = requireFormBody(PHOTOROOM_FIELDS);
      const checks = createPictureChecks(services, connections, { body });
      const { answer } = new PictureRoute(services, checks, {
        namespace: 'photoroom',
        waitMs,
        read: (request, uploads) => readFormBody(request, uploads, PHOTOROOM_FIELDS),
        parse: photoroomRequestOf,
        jsonOf: () => ['{"base64img":"', '"}'],
      });
      app.post(`${PATH}v1/segment`, { onRequest: checks.submission }, answer);
    },
    errorWriterOf: (_request, path) =>
      path.startsWith(PATH)
        ? (error, _request, reply) => sendRefusal(reply, error, photoroomErrorOf(error))
        : undefined,
    longestWaitMs: waitMs,
  };
}

const namesHere = renaming({ image_base64: 'image_file_b64', output_format: 'format' });
/** Photoroom answers other errors of the client with 400. */
const STATUSES = [402, 403, 404, 405, 429];

function photoroomErrorOf(error: ContractError) {
  const status = statusOf(error);
  const type = isMissingImage(error) ? 'missing_image' : error.code.toLowerCase();
  return { status, body: { detail: namesHere(error.message), status_code: status, type } };
}

function statusOf({ code, retryable, spec: { http } }: ContractError): number {
  if (http === 401) return 403;
  if (code === 'PROCESSING_FAILED' && retryable) return 503;
  return http >= 500 || STATUSES.includes(http) ? http : 400;
}
