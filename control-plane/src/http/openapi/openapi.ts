/**
 * The OpenAPI 3.1 document of the public port. Its codes come from the error catalogue, its schemas
 * are tied to the types of the routes, and a test holds every real answer against it, and it
 * against the answers: what is named here is provoked there.
 */

import { ERROR_DOCS_PATH } from '../answers/problem.ts';
import { DOCS_PATH } from '../pages/docs-page.ts';
import * as examples from './openapi-examples.ts';
import { readJob, submitAsync, submitSync } from './openapi-matting.ts';
import {
  headerRefs,
  headersOf,
  type JsonObject,
  jsonResponse,
  keyed,
  parameters,
  problemResponses,
} from './openapi-parts.ts';
import { downloadResult, headResult } from './openapi-results.ts';
import { schemas } from './openapi-schemas.ts';
import { webhooks } from './openapi-webhooks.ts';

const TAGS = [
  { name: 'Matting', description: 'Cut out an image, and read the job that does it.' },
  { name: 'Results', description: 'Download the cut-out.' },
  { name: 'Account', description: 'Credits, packages and keys.' },
  { name: 'Documents', description: 'What describes this service. No key.' },
  { name: 'Health', description: 'For load balancers. No key.' },
  { name: 'Notifications', description: 'What this service sends to a callback_url.' },
];

function accountRead(
  operationId: string,
  summary: string,
  schema: string,
  example: JsonObject,
): JsonObject {
  const responses = { 200: jsonResponse(`${summary}.`, schema, [], { example }) };
  return keyed({ operationId, tags: ['Account'], summary }, responses, []);
}

/** For whoever has no key: what it says is the same for all. */
function openRead(
  tag: string,
  operationId: string,
  summary: string,
  responses: Record<string, JsonObject>,
  codes: Parameters<typeof problemResponses>[0] = [],
): JsonObject {
  return {
    operationId,
    tags: [tag],
    summary,
    security: [],
    responses: { ...responses, ...problemResponses(['INVALID_REQUEST', ...codes]) },
  };
}

function documentRead(operationId: string, summary: string, ...types: string[]): JsonObject {
  const media = types.map(type => {
    const isJson = type === 'application/json';
    return [type, { schema: { type: isJson ? 'object' : 'string' } }];
  });
  return openRead('Documents', operationId, summary, {
    200: {
      description: `${summary}.`,
      headers: headerRefs(types.length > 1 ? ['Vary'] : []),
      content: Object.fromEntries(media),
    },
  });
}

const paths: JsonObject = {
  '/v1/matting': { post: submitSync },
  '/v1/matting/jobs': { post: submitAsync },
  '/v1/matting/jobs/{job_id}': { get: readJob },
  '/v1/results/{token}': { get: downloadResult, head: headResult },
  '/v1/account': {
    get: accountRead('readAccount', "The account's credits", 'Account', examples.account),
  },
  '/v1/account/packages': {
    get: accountRead(
      'listPackages',
      'The packages that credits are sold in',
      'Packages',
      examples.packages,
    ),
  },
  '/v1/account/keys': {
    get: accountRead(
      'listKeys',
      "The account's API keys, without their secrets",
      'Keys',
      examples.keys,
    ),
  },
  '/v1/openapi.json': {
    get: documentRead('readOpenApi', 'This document', 'application/json'),
  },
  [DOCS_PATH]: { get: documentRead('readDocs', 'This document, for people', 'text/html') },
  [ERROR_DOCS_PATH]: {
    get: documentRead(
      'readErrorDocs',
      'Every error code and what to do',
      'text/markdown',
      'text/html',
    ),
  },
  '/livez': {
    get: openRead('Health', 'livez', 'Whether the process lives', {
      200: jsonResponse('It lives.', 'Health', [], { alive: { status: 'alive' } }),
    }),
  },
  '/readyz': {
    get: openRead(
      'Health',
      'readyz',
      'Whether the process can take work',
      { 200: jsonResponse('It can.', 'Health', [], { ready: { status: 'ready' } }) },
      ['INTERNAL_ERROR', 'SERVICE_UNAVAILABLE'],
    ),
  },
};

const DESCRIPTION =
  'One credit is reserved at submission, charged when matting succeeds and returned when it fails. ' +
  'Every error is application/problem+json. HEAD is answered wherever GET is. A path or a method ' +
  'that is not listed here is answered with NOT_FOUND or METHOD_NOT_ALLOWED, and a result link ' +
  'needs no key. Clients ignore fields, headers and codes they do not know: /v1 grows by addition.';

/** @param options.baseUrl without a trailing slash */
export function openApiDocument(options: { baseUrl: string; version: string }): JsonObject {
  const [notFound] = Object.values(problemResponses(['NOT_FOUND']));
  const [methodNotAllowed] = Object.values(problemResponses(['METHOD_NOT_ALLOWED']));
  const responses = { NotFound: notFound, MethodNotAllowed: methodNotAllowed };
  return {
    openapi: '3.1.0',
    info: {
      title: 'Matting service',
      version: options.version,
      summary: 'Removes the background of images.',
      description: DESCRIPTION,
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: options.baseUrl }],
    tags: TAGS,
    paths,
    webhooks,
    components: {
      securitySchemes: {
        apiKey: {
          type: 'http',
          scheme: 'bearer',
          description:
            'An API key of the account. It belongs on a server, never in a page or an app.',
        },
      },
      parameters,
      headers: headersOf({ paths, responses }),
      responses,
      schemas,
    },
  };
}
