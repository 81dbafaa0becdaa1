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
const ifNoneMatch = header('If-None-Match', 'An ETag: answered with 304 where it is current.');

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
    description: 'The copy named in If-None-Match is current.',
    headers: headerRefs(['ETag']),
  },
  ...problemResponses([
    'INVALID_REQUEST',
    'NOT_FOUND',
    'RESULT_EXPIRED',
    'INTERNAL_ERROR',
    'SERVICE_UNAVAILABLE',
  ]),
};

export const headResult: JsonObject = {
  operationId: 'headResult',
  summary: 'What a result link leads to',
  ...shared,
  parameters: [token, ifNoneMatch],
  responses,
};

export const downloadResult: JsonObject = {
  operationId: 'downloadResult',
  summary: 'Download a result',
  ...shared,
  parameters: [
    token,
    header('Range', 'One range of bytes; several are answered with the whole file.'),
    header('If-Range', 'An ETag: the range is served only while it is current.'),
    ifNoneMatch,
  ],
  responses: {
    ...responses,
    206: fileResponse('The range asked for.', [...FILE_HEADERS, 'Content-Range']),
    416: {
      description: 'The range lies outside of the file.',
      headers: headerRefs(['Content-Range']),
    },
  },
};
