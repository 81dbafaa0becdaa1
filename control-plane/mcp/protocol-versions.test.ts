/** The SDK of today, the one before, and messages written by hand. */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as FormerClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as FormerTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import ava from 'ava';
import { base64, callOf, post, useTestApp } from './test/mcp-client.ts';

const test = ava.serial;

const LATEST = '2026-07-28';
const FORMER = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];

let endpoint: { readonly url: URL; readonly requestInit: RequestInit };
const app = useTestApp(test, { credits: 100 }, async () => {
  const url = new URL(`http://127.0.0.1:${await app.listen()}/mcp`);
  endpoint = { url, requestInit: { headers: { authorization: `Bearer ${app.token}` } } };
});

const ABOUT = { name: 'a test', version: '1' };

const META = {
  'io.modelcontextprotocol/protocolVersion': LATEST,
  'io.modelcontextprotocol/clientInfo': ABOUT,
  'io.modelcontextprotocol/clientCapabilities': {},
};

const AGENTS = {
  async latest() {
    const client = new Client(ABOUT, { versionNegotiation: { mode: { pin: LATEST } } });
    await client.connect(new StreamableHTTPClientTransport(endpoint.url, endpoint));
    return client;
  },
  async 'that opens as before'() {
    const client = new Client(ABOUT, { versionNegotiation: { mode: 'legacy' } });
    await client.connect(new StreamableHTTPClientTransport(endpoint.url, endpoint));
    return client;
  },
  async 'of the SDK before'() {
    const client = new FormerClient(ABOUT);
    await client.connect(new FormerTransport(endpoint.url, endpoint) as Transport);
    return client;
  },
};

for (const [name, connect] of Object.entries(AGENTS)) {
  test(`an agent › ${name} › lists, reads and calls`, async t => {
    const jobs = app.onSubmitted(id => app.succeedJob(id, Buffer.from('a cut-out')));
    t.teardown(() => jobs.stop());
    const client = await connect();
    t.teardown(() => client.close());
    t.regex(client.getInstructions() ?? '', /remove_background/);
    t.true((await client.listTools()).tools.length > 3);
    const [resource] = (await client.listResources()).resources;
    t.truthy((await client.readResource({ uri: resource!.uri })).contents[0]);
    const call = { name: 'remove_background', arguments: { image_base64: base64(20_000) } };
    const { structuredContent, isError } = await client.callTool(call);
    t.falsy(isError);
    t.like(structuredContent, { status: 'succeeded' });
    await t.throwsAsync(async () => await client.callTool({ name: 'none' }), {
      message: /no tool/,
    });
  });
}

test('each former version is agreed to, and answered in JSON', async t => {
  for (const protocolVersion of FORMER) {
    const params = { protocolVersion, capabilities: {}, clientInfo: ABOUT };
    const opened = await post(app, { jsonrpc: '2.0', id: 1, method: 'initialize', params });
    t.regex(String(opened.headers['content-type']), /^application\/json/);
    t.is(opened.json().result.protocolVersion, protocolVersion);
    const called = await post(app, callOf('get_account', {}), {
      'mcp-protocol-version': protocolVersion,
    });
    t.is(called.json().result.isError, undefined, called.payload);
  }
});

const HEADERS = { 'mcp-protocol-version': LATEST, 'mcp-method': 'tools/call' };

test('each former version is answered in JSON whatever else the client accepts', async t => {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: ABOUT };
  for (const accept of [undefined, '*/*', 'application/json', 'application/*;q=0.5, text/html']) {
    for (const message of [
      { jsonrpc: '2.0', id: 1, method: 'initialize', params },
      { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} },
      callOf('get_account', {}),
    ]) {
      const { statusCode, headers, payload } = await post(app, message, { accept });
      t.is(statusCode, 200, `${accept}: ${payload}`);
      t.regex(String(headers['content-type']), /^application\/json/);
    }
    const noted = { jsonrpc: '2.0', method: 'notifications/initialized' };
    t.is((await post(app, noted, { accept })).statusCode, 202);
  }
});

const PROBE = { jsonrpc: '2.0', id: 1, method: 'server/discover' };

test('a probe for the latest version finds it, also with an Accept that names JSON alone', async t => {
  const headers = { 'mcp-protocol-version': LATEST, 'mcp-method': 'server/discover' };
  for (const accept of [undefined, '*/*', 'application/json']) {
    const body = { ...PROBE, params: { _meta: META } };
    const { statusCode, payload } = await post(app, body, { ...headers, accept });
    t.is(statusCode, 200, payload);
    t.deepEqual(JSON.parse(payload).result.supportedVersions, [LATEST]);
  }
});

test('a probe that a bridge passes on without the headers leads its client to initialize', async t => {
  for (const params of [{ _meta: META }, {}, undefined]) {
    const { statusCode, payload } = await post(app, { ...PROBE, params });
    t.is(statusCode, 200, payload);
    t.is(JSON.parse(payload).error.code, -32601);
  }
  // A bridge made of the earlier SDK, with a client after it that accepts either version.
  const bridge = new FormerTransport(endpoint.url, endpoint);
  const client = new Client(ABOUT, { versionNegotiation: { mode: 'auto' } });
  await client.connect(bridge as unknown as StreamableHTTPClientTransport);
  t.teardown(() => client.close());
  t.true((await client.listTools()).tools.length > 3);
});

test('a message of the latest version says in its headers what it is, or is refused', async t => {
  const call = callOf('get_account', {});
  const body = { ...call, params: { ...call.params, _meta: META } };
  const answered = await post(app, body, { ...HEADERS, 'mcp-name': 'get_account' });
  t.is(answered.json().result?.isError, undefined, answered.payload);
  for (const wrong of [
    { 'mcp-name': 'list_models' },
    { 'mcp-name': 'get_account', 'mcp-method': 'tools/list' },
    { 'mcp-name': 'get_account', 'mcp-protocol-version': '2025-11-25' },
    {},
  ]) {
    const { statusCode, payload } = await post(app, body, { ...HEADERS, ...wrong });
    t.is(statusCode, 400, payload);
  }
});

test('a subscription ends at once, since nothing here changes', async t => {
  const params = { notifications: { toolsListChanged: true }, _meta: META };
  const method = 'subscriptions/listen';
  const body = { jsonrpc: '2.0', id: 1, method, params };
  const answer = await post(app, body, { ...HEADERS, 'mcp-method': method });
  t.is(answer.statusCode, 200);
  t.regex(answer.payload, /"resultType":"complete"/);
});
