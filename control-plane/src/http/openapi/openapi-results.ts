/** The OpenAPI operations of result links. */
import {
  fileResponse,
  type HeaderName,
  headerRefs,
  type JsonObject,
  problemResponses,
} from './openapi-parts.ts';

const FILE_HEADERS: readonly HeaderName[] = [
  'ETag',
  'Last-Modified',
  'Accept-Ranges',
  'Content-Length',
  'Content-Disposition',
];

function header(name: string, description: string): JsonObject {
  return { name, in: 'header', required: false, description, schema: { type: 'string' } };
}

const token: JsonObject = {
  name: 'token',
  in: 'path',
  required: true,
  description: 'Unguessable: the link is the capability.',
  schema: { type: 'string' },
};
const conditions: readonly JsonObject[] = [
  header('If-Match', 'An ETag: answered with 412 where it is not current.'),
  header('If-None-Match', 'An ETag: answered with 304 where it is current.'),
  header('If-Modified-Since', 'A date, without If-None-Match: 304 where the file is no younger.'),
  header('If-Unmodified-Since', 'A date, without If-Match: 412 where the file is younger.'),
];

const shared = {
  tags: ['Results'],
  description:
    'Needs no key. The same link is given on every read and replay; it is good for 24 hours after ' +
    'success.',
  security: [],
};
const responses = {
  200: fileResponse('The file.', FILE_HEADERS),
  304: {
    description: 'The copy named in If-None-Match or If-Modified-Since is current.',
    headers: headerRefs(['ETag', 'Last-Modified']),
  },
  ...problemResponses([
    'INVALID_REQUEST',
    'NOT_FOUND',
    'RESULT_EXPIRED',
    'PRECONDITION_FAILED',
    'INTERNAL_ERROR',
    'SERVICE_UNAVAILABLE',
  ]),
};

export const headResult: JsonObject = {
  operationId: 'headResult',
  summary: 'What a result link leads to',
  ...shared,
  parameters: [token, ...conditions],
  responses,
};

export const downloadResult: JsonObject = {
  operationId: 'downloadResult',
  summary: 'Download a result',
  ...shared,
  parameters: [
    token,
    header('Range', 'One range of bytes; several are answered with the whole file.'),
    header('If-Range', 'An ETag or Last-Modified: the range is served only where it is current.'),
    ...conditions,
  ],
  responses: {
    ...responses,
    206: fileResponse('The range asked for.', [...FILE_HEADERS, 'Content-Range']),
    ...problemResponses(['RANGE_NOT_SATISFIABLE'], () => ['Content-Range']),
    ...problemResponses(['RATE_LIMITED'], () => ['Retry-After']),
  },
};
