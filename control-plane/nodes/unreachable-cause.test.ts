import { createServer } from 'node:net';
import { ChannelCredentials, Server, ServerCredentials } from '@grpc/grpc-js';
import { MatteServiceService } from '@matting/proto/gen/matting/v1/matte_service.ts';
import { TestAuthority } from '@matting/test-support/certificates.ts';
import ava from 'ava';
import { NodeClient } from './node-client.ts';
import { unreachableCause } from './unreachable-cause.ts';

const test = ava.serial;

const authority = new TestAuthority();
const servers: Server[] = [];

test.afterEach.always(() => {
  for (const server of servers.splice(0)) server.forceShutdown();
});

function credentialsOf(issuer: TestAuthority, endsMs?: number, callers?: TestAuthority) {
  const { cert, key } = issuer.issue('node', undefined, endsMs);
  const pair = { cert_chain: Buffer.from(cert), private_key: Buffer.from(key) };
  const ca = callers === undefined ? null : Buffer.from(callers.cert);
  return ServerCredentials.createSsl(ca, [pair], callers !== undefined);
}

/** Like a node with another token. */
async function serve(credentials: ServerCredentials): Promise<number> {
  const server = new Server();
  servers.push(server);
  const refuse = (_: unknown, callback: (error: object) => void) =>
    callback({ code: 16, details: 'The node token is missing or wrong.' });
  server.addService(MatteServiceService, {
    getNodeInfo: refuse,
    watchCapacity: () => undefined,
    matte: () => undefined,
  });
  return new Promise((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', credentials, (error, port) =>
      error === null ? resolve(port) : reject(error),
    ),
  );
}

async function causeAt(address: string, security = ChannelCredentials.createInsecure(), name = '') {
  const options = name === '' ? {} : { 'grpc.ssl_target_name_override': name };
  const client = new NodeClient(address, () => 'token', { credentials: security, options });
  try {
    await client.getNodeInfo();
    return 'reached';
  } catch (error) {
    return unreachableCause(error);
  } finally {
    client.close();
  }
}

const trusting = ChannelCredentials.createSsl(Buffer.from(authority.cert));
const toTls = async (credentials: ServerCredentials, name = 'localhost') =>
  causeAt(`localhost:${await serve(credentials)}`, trusting, name);

test('a certificate that has expired', async t => {
  t.is(await toTls(credentialsOf(authority, -1000)), 'its certificate has expired');
});

test('a certificate for another name', async t => {
  const cause = await toTls(credentialsOf(authority), 'other.example');
  t.is(cause, 'its certificate is for another name than the one it is called by');
});

test('a certificate of an authority that is not trusted', async t => {
  const cause = await toTls(credentialsOf(new TestAuthority()));
  t.regex(cause, /MATTING_TLS_SERVER_CA_FILE/);
});

test('a node that wants a certificate of its callers', async t => {
  const cause = await toTls(credentialsOf(authority, undefined, authority));
  t.regex(cause, /it refuses the certificate of the control plane|it closes the connection/);
});

test('TLS on one side alone', async t => {
  t.regex(await toTls(ServerCredentials.createInsecure()), /does not use TLS/);
  const plain = await causeAt(`127.0.0.1:${await serve(credentialsOf(authority))}`);
  t.is(plain, 'it closes the connection; compare the TLS settings of both');
});

test('another token', async t => {
  t.is(await toTls(credentialsOf(authority)), 'it refuses the node token of the control plane');
});

test('a port that nothing listens to, and a name that does not resolve', async t => {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise(resolve => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  await new Promise(resolve => server.close(resolve));
  t.is(await causeAt(`127.0.0.1:${port}`), 'it refuses the connection');
  t.is(await causeAt('node.invalid:1'), 'the name of its address does not resolve');
});

test('words that are not known are cut to one line', t => {
  const cause = unreachableCause(new Error(`first\n\u001b[31msecond ${'x'.repeat(1000)}`));
  t.true(cause.startsWith('first [31msecond x'));
  t.true(cause.length <= 200);
  t.is(
    unreachableCause(new Error('certificate is not yet valid')),
    'its certificate is not valid yet; compare the clocks of both machines',
  );
});
