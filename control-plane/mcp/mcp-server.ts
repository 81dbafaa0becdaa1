/**
 * A message of the Model Context Protocol and its answer, by the official SDK. Each has a server of
 * its own, which remembers nothing: any replica answers.
 */
import { readFile } from 'node:fs/promises';
import { shownName } from '@matting/http/body-fields.ts';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import {
  CallToolRequestSchema,
  ErrorCode,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/ajv-provider.js';
import type { Calling, CallTools } from './call-tools.ts';
import { type DescribedFields, toolsOf } from './tools.ts';

const INSTRUCTIONS =
  'Removes the backgrounds of images. Call remove_background with the address of an image. Give ' +
  'the user the link from its answer.';

/** All servers share it, since each would make its own. */
const jsonSchemaValidator = new AjvJsonSchemaValidator();

const REST_PAGE = new URL('../../docs/rest.md', import.meta.url);
/** docs/rest.md writes the address of the service so. */
const LOCAL = 'http://127.0.0.1:8080';

interface DescribedRequest {
  readonly properties: DescribedFields;
}

export interface Described {
  readonly baseUrl: string;
  readonly version: string;
  /** Answers the OpenAPI document as it is served. */
  readonly document: () => {
    readonly components: { readonly schemas: { readonly MattingRequest: DescribedRequest } };
  };
}

/** The transport checks these headers; the body was read before. */
const JUDGED_HEADERS = ['accept', 'content-type', 'mcp-protocol-version'] as const;

/** @param message null: the body was not JSON, which the transport answers */
export async function answerMessage(
  message: unknown,
  calling: Calling,
  tools: CallTools,
  described: Described,
) {
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
  await serverOf(calling, tools, described).connect(transport);
  const headers = new Headers();
  for (const name of JUDGED_HEADERS) {
    const value = calling.request.headers[name];
    if (value !== undefined) headers.set(name, String(value));
  }
  const request = new Request(`${described.baseUrl}/mcp`, { method: 'POST', headers });
  const response = await transport.handleRequest(request, { parsedBody: message });
  const { status } = response;
  return { status, headers: Object.fromEntries(response.headers), text: await response.text() };
}

function serverOf(calling: Calling, tools: CallTools, described: Described): Server {
  const { version, baseUrl, document } = described;
  const server = new Server(
    { name: 'matting', title: 'Background removal', version, websiteUrl: baseUrl },
    { capabilities: { tools: {}, resources: {} }, instructions: INSTRUCTIONS, jsonSchemaValidator },
  );
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: toolsOf(document().components.schemas.MattingRequest.properties),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }) => {
    const result = await tools.call(params.name, calling, params.arguments ?? {});
    if (result !== undefined) return result;
    const wrong = `There is no tool ${shownName(params.name)}. Call ${tools.names.join(', ')}.`;
    throw new McpError(ErrorCode.InvalidParams, wrong);
  });
  const resources = resourcesOf(described);
  const listed = resources.map(({ read: _read, ...resource }) => resource);
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: listed }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: [] }));
  server.setRequestHandler(ReadResourceRequestSchema, async ({ params: { uri } }) => {
    const resource = resources.find(one => one.uri === uri);
    if (resource === undefined)
      throw new McpError(NO_RESOURCE, `There is no resource ${shownName(uri)}.`);
    const { mimeType, read } = resource;
    return { contents: [{ uri, mimeType, text: await read() }] };
  });
  return server;
}

/** The protocol's code for a resource that does not exist. */
const NO_RESOURCE = -32002;

function resourcesOf({ baseUrl, document }: Described) {
  return [
    {
      uri: 'matting://docs/rest.md',
      name: 'rest',
      title: 'The REST interface',
      description: 'For programs: every field, answer and error of /v1, with examples.',
      mimeType: 'text/markdown',
      read: async () => (await readFile(REST_PAGE, 'utf8')).replaceAll(LOCAL, baseUrl),
    },
    {
      uri: `${baseUrl}/v1/openapi.json`,
      name: 'openapi',
      title: 'The REST interface as OpenAPI 3.1',
      mimeType: 'application/json',
      read: async () => JSON.stringify(document()),
    },
  ];
}
