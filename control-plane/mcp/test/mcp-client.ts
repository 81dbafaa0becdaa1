import { randomUUID } from 'node:crypto';
import { pngHeader, type TestApp, testApps } from '@matting/core/test/support/test-app.ts';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { mcp } from '../mcp.ts';

export const { openTestApp, useTestApp } = testApps([mcp], stores => stores);

/** Unique, since the same image is the same call. */
export const image = (bytes = 0) =>
  Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID()), Buffer.alloc(bytes, 7)]);
export const base64 = (bytes = 0) => image(bytes).toString('base64');

export interface Called {
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: whatever fields a test expects
  readonly fields: any;
  readonly isError: boolean;
  readonly pictures: readonly object[];
}

export class Agent {
  readonly client = new Client(
    { name: 'a test', version: '1' },
    { versionNegotiation: { mode: 'auto' } },
  );

  static async at(port: number, token: string): Promise<Agent> {
    const agent = new Agent();
    const headers = { authorization: `Bearer ${token}` };
    const url = new URL(`http://127.0.0.1:${port}/mcp`);
    await agent.client.connect(
      new StreamableHTTPClientTransport(url, { requestInit: { headers } }),
    );
    return agent;
  }

  async call(name: string, given: Record<string, unknown> = {}): Promise<Called> {
    const { content, structuredContent, isError } = await this.client.callTool({
      name,
      arguments: given,
    });
    const [{ text = '' } = {}, ...pictures] = content as { text?: string }[];
    return { text, fields: structuredContent, isError: isError === true, pictures };
  }

  remove(given: Record<string, unknown>): Promise<Called> {
    return this.call('remove_background', given);
  }
}

/** Sends a file as curl -T does, without a type. */
export async function put(port: number, address: string, body: Buffer, type?: string) {
  const url = `http://127.0.0.1:${port}${new URL(address).pathname}`;
  const headers = type === undefined ? {} : { 'content-type': type };
  const answer = await fetch(url, { method: 'PUT', body: new Uint8Array(body), headers });
  const text = await answer.text();
  return { status: answer.status, fields: text === '' ? {} : JSON.parse(text) };
}

export const HEADERS = {
  accept: 'application/json, text/event-stream',
  'content-type': 'application/json',
};

type Sent = Readonly<Record<string, string | undefined>>;

export function post({ app, token }: TestApp, body: unknown, more: Sent = {}) {
  const all = { ...HEADERS, authorization: `Bearer ${token}`, ...more };
  const headers = Object.fromEntries(Object.entries(all).filter(([, value]) => value)) as Record<
    string,
    string
  >;
  const payload = typeof body === 'string' ? body : JSON.stringify(body);
  return app.inject({ method: 'POST', url: '/mcp', headers, payload });
}

export const callOf = (name: string, given: unknown) => ({
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name, arguments: given },
});
