/**
 * Answers a message of the Model Context Protocol by the official SDK. Each message has a server of
 * its own without memory, so any replica answers.
 */
import { readFileSync } from 'node:fs';
import { shownName } from '@matting/http/body-fields.ts';
import { acceptsJson } from '@matting/http/request-headers.ts';
import {
  createMcpHandler,
  isLegacyRequest,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv';
import type { Calling, CallTools, ToolOptions } from './call-tools.ts';
import { type DescribedFields, toolsOf } from './tools.ts';

const INSTRUCTIONS =
  'Removes the backgrounds of images. Call remove_background with the address of an image; for a ' +
  'file on this machine call create_upload first. Give the user the link from its answer.';

/** One for all servers, since each would compile the schemas again. */
const jsonSchemaValidator = new AjvJsonSchemaValidator();

const REST_PAGES =
  'rest requests jobs formats finishing batches-and-corrections webhooks keys'.split(' ');
/** The service's address in the pages; baseUrl replaces it. */
const LOCAL = 'http://127.0.0.1:8080';

export interface Described extends Pick<ToolOptions, 'baseUrl' | 'policy'> {
  readonly version: string;
  readonly document: () => {
    readonly components: {
      readonly schemas: { readonly MattingRequest: { readonly properties: object } };
    };
  };
}

const JUDGED_HEADERS = ['content-type', 'mcp-protocol-version', 'mcp-method', 'mcp-name'] as const;

/** @param message null: the body was not JSON. The SDK answers that. */
export async function answerMessage(
  message: unknown,
  calling: Calling,
  tools: CallTools,
  described: Described,
) {
  const headers = new Headers();
  for (const name of JUDGED_HEADERS) {
    const value = calling.request.headers[name];
    if (value !== undefined) headers.set(name, String(value));
  }
  // The SDK requires callers to accept event streams, too. Ours need not, since they get JSON.
  const { accept = '*/*' } = calling.request.headers;
  headers.set('accept', acceptsJson(accept) ? 'application/json, text/event-stream' : accept);
  const request = new Request(`${described.baseUrl}/mcp`, { method: 'POST', headers });
  const server = serverOf(calling, tools, described);
  // Without a parsed body the SDK reads the empty body of `request`, and answers that it is not
  // JSON.
  const response = await respond(request, message ?? undefined, server);
  const { status } = response;
  return { status, headers: Object.fromEntries(response.headers), text: await response.text() };
}

/**
 * Versions before 2026-07-28 open with `initialize`. Later ones name their version in each message.
 * A bridge of an earlier version forwards its client's `server/discover` without the version's
 * header. It must get "method not found", as from every earlier server: then the client continues
 * with `initialize`.
 */
async function respond(request: Request, parsedBody: unknown, server: Server): Promise<Response> {
  const { method } = (parsedBody ?? {}) as { readonly method?: unknown };
  const isBridged = method === 'server/discover' && !request.headers.has('mcp-protocol-version');
  if (!isBridged && !(await isLegacyRequest(request, parsedBody))) {
    return await createMcpHandler(() => server, { legacy: 'reject' }).fetch(request, {
      parsedBody,
    });
  }
  // By default the SDK answers with event streams.
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
  await server.connect(transport);
  return await transport.handleRequest(request, { parsedBody });
}

function serverOf(calling: Calling, tools: CallTools, described: Described): Server {
  const { version, baseUrl, document, policy } = described;
  const server = new Server(
    { name: 'matting', title: 'Background removal', version, websiteUrl: baseUrl },
    { capabilities: { tools: {}, resources: {} }, instructions: INSTRUCTIONS, jsonSchemaValidator },
  );
  const listed = () =>
    toolsOf(document().components.schemas.MattingRequest.properties as DescribedFields, {
      models: tools.modelsFor(calling.request),
      corrections: policy.corrections === true,
    });
  server.setRequestHandler('tools/list', () => ({ tools: listed() }));
  server.setRequestHandler('tools/call', async ({ params }) => {
    const result = await tools.call(params.name, calling, params.arguments ?? {});
    if (result !== undefined) return result;
    const names = listed().map(tool => tool.name);
    const wrong = `There is no tool ${shownName(params.name)}. Call ${names.join(', ')}.`;
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, wrong);
  });
  const resources = resourcesFor(described);
  server.setRequestHandler('resources/list', () => ({
    resources: resources.map(({ read: _read, ...resource }) => resource),
  }));
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates: [] }));
  server.setRequestHandler('resources/read', async ({ params: { uri } }) => {
    const resource = resources.find(one => one.uri === uri);
    if (resource === undefined)
      throw new ResourceNotFoundError(uri, `There is no resource ${shownName(uri)}.`);
    const { mimeType, read } = resource;
    return { contents: [{ uri, mimeType, text: read() }] };
  });
  return server;
}

const known = new WeakMap<Described, ReturnType<typeof resourcesOf>>();

function resourcesFor(described: Described) {
  const resources = known.get(described) ?? resourcesOf(described);
  known.set(described, resources);
  return resources;
}

function readPage(name: string): string {
  return readFileSync(new URL(`../../docs/${name}.md`, import.meta.url), 'utf8');
}

function once(make: () => string): () => string {
  let made: string | undefined;
  return () => (made ??= make());
}

function resourcesOf({ baseUrl, document }: Described) {
  return [
    {
      uri: 'matting://docs/rest.md',
      name: 'rest',
      title: 'The REST interface',
      description: 'For programs: every field, answer and error of /v1, with examples.',
      mimeType: 'text/markdown',
      read: once(() => REST_PAGES.map(readPage).join('\n').replaceAll(LOCAL, baseUrl)),
    },
    {
      uri: `${baseUrl}/v1/openapi.json`,
      name: 'openapi',
      title: 'The REST interface as OpenAPI 3.1',
      mimeType: 'application/json',
      read: once(() => JSON.stringify(document())),
    },
  ];
}
