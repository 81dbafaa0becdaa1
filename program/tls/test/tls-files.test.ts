import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import path from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { Server } from '@grpc/grpc-js';
import { NO_TLS, TestAuthority } from '@matting/test-support/certificates.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { EnvReader } from '../../env.ts';
import { TlsFileError } from '../tls-content.ts';
import { TlsFiles } from '../tls-files.ts';
import { readTlsSettings, type TlsSettings } from '../tls-settings.ts';

const test = ava.serial;

const home = await temporaryFolder({ teardown: test.after.always });
let directory: string;
const authority = new TestAuthority();
let lines: { readonly fields: object; readonly message: string }[];

test.beforeEach(async () => {
  directory = await mkdtemp(path.join(home, 'test-'));
  lines = [];
});

const log = {
  info: (fields: object, message: string) => void lines.push({ fields, message }),
  warn: (fields: object, message: string) => void lines.push({ fields, message }),
};

const at = (name: string) => path.join(directory, name);

async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) await writeFile(at(name), text);
}

const OWN: TlsSettings = {
  ...NO_TLS,
  get identity() {
    return { certFile: at('cert.pem'), keyFile: at('key.pem') };
  },
};

const problems = (env: Record<string, string>) => {
  const reader = new EnvReader(env);
  readTlsSettings(reader);
  return reader.problems.map(({ variable }) => variable);
};

test('MATTING_TLS_* › belong together', t => {
  t.deepEqual(problems({}), []);
  const cert = { MATTING_TLS_CERT_FILE: '/c' };
  const key = { MATTING_TLS_KEY_FILE: '/k' };
  t.deepEqual(problems(cert), ['MATTING_TLS_KEY_FILE']);
  t.deepEqual(problems(key), ['MATTING_TLS_CERT_FILE']);
  t.deepEqual(problems({ MATTING_TLS_CLIENT_CA_FILE: '/a' }), ['MATTING_TLS_CERT_FILE']);
  t.deepEqual(problems({ MATTING_TLS_SERVER_NAME: 'node' }), ['MATTING_TLS_SERVER_CA_FILE']);
  const names = { MATTING_TLS_SERVER_CA_FILE: '/a', MATTING_TLS_SERVER_NAME: 'a name' };
  t.deepEqual(problems(names), ['MATTING_TLS_SERVER_NAME']);
  t.deepEqual(problems({ ...cert, ...key, MATTING_TLS_CLIENT_CA_FILE: '/a' }), []);
  t.deepEqual(problems({ MATTING_TLS_SERVER_CA_FILE: '/a' }), []);
});

async function refused(settings: TlsSettings): Promise<string> {
  const error = await TlsFiles.open(settings, { log }).then(
    () => assert.fail('they were used'),
    (caught: Error) => caught,
  );
  assert.ok(error instanceof TlsFileError);
  assert.ok(!error.message.includes('\n') && !error.message.includes('BEGIN'));
  return error.message;
}

test('TLS files that cannot be used › are named by their variable', async t => {
  const { cert, key } = authority.issue('own');
  t.regex(await refused(OWN), /^MATTING_TLS_(CERT|KEY)_FILE: .*\(ENOENT: /);
  await write({ 'cert.pem': 'no PEM', 'key.pem': key });
  t.regex(await refused(OWN), /^MATTING_TLS_CERT_FILE: .*no certificate/);
  await write({ 'cert.pem': cert, 'key.pem': cert });
  t.regex(await refused(OWN), /^MATTING_TLS_KEY_FILE: .*no private key/);
  await write({ 'key.pem': authority.issue('another').key });
  t.regex(await refused(OWN), /^MATTING_TLS_KEY_FILE: is not the key of/);
  const large = at('large.pem');
  await writeFile(large, Buffer.alloc(2 * 1024 * 1024, 'a'));
  t.regex(await refused({ ...NO_TLS, clientCaFile: large }), /^MATTING_TLS_CLIENT_CA_FILE/);
  const folder = { ...NO_TLS, serverCaFile: directory };
  t.regex(await refused(folder), /^MATTING_TLS_SERVER_CA_FILE: .*EISDIR/);
});

let server: Server;
let port: number;
let files: TlsFiles;

/** @param pollMs an hour: only when the test reloads */
async function serve(pollMs = 3_600_000): Promise<void> {
  const { cert, key } = authority.issue('first');
  await write({ 'cert.pem': cert, 'key.pem': key });
  files = await TlsFiles.open({ ...NO_TLS, identity: OWN.identity }, { log, pollMs });
  server = new Server();
  port = await new Promise<number>((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', files.serverCredentials(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
}
const cleanUp = () => {
  files.close();
  server.forceShutdown();
};

async function subject(): Promise<string> {
  const socket = await dial();
  const { subject: own } = socket.getPeerCertificate();
  socket.destroy();
  return String(own.CN);
}

async function dial(): Promise<TLSSocket> {
  const socket = connect({ host: '127.0.0.1', port, ca: authority.cert, ALPNProtocols: ['h2'] });
  await once(socket, 'secureConnect');
  return socket;
}

async function untilSubject(wanted: string): Promise<void> {
  await until(`the certificate of ${wanted}`, async () => (await subject()) === wanted);
}

test('TLS files that change › are used for new connections, and old ones go on', async t => {
  t.teardown(cleanUp);
  await serve(20);
  const session = connectHttp2(`https://127.0.0.1:${port}`, { ca: authority.cert });
  await once(session, 'connect');
  const next = authority.issue('second');
  await write({ 'cert.pem': next.cert, 'key.pem': next.key });
  await untilSubject('second');
  await new Promise<void>((resolve, reject) =>
    session.ping(error => (error ? reject(error) : resolve())),
  );
  assert.ok(!session.closed && !session.destroyed);
  session.destroy();
  // A check between the writes of the two files logs a warning and is harmless.
  const messages = lines
    .map(({ message }) => message)
    .filter(line => line.startsWith('TLS files '));
  t.deepEqual(messages, ['TLS files read', 'TLS files changed; new connections use them']);
});

test('TLS files that change › end when those end that are in use, and the log says so in time', async t => {
  t.teardown(cleanUp);
  await serve();
  const dayMs = 86_400_000;
  const daysLeft = () => files.ends.map(({ file, endMs }) => [file, (endMs - Date.now()) / dayMs]);
  t.true(lines.some(({ message }) => message.startsWith('a certificate expires soon')));
  const next = authority.issue('renewed', undefined, 90 * dayMs);
  await write({ 'cert.pem': next.cert, 'key.pem': next.key });
  lines = [];
  await files.reload();
  const [[file, days] = []] = daysLeft();
  t.is(file, 'MATTING_TLS_CERT_FILE');
  t.is(Math.round(Number(days)), 90);
  t.false(lines.some(({ message }) => message.startsWith('a certificate ')));
  // An unused file does not affect the used one's end.
  const expired = authority.issue('expired', undefined, -dayMs);
  await write({ 'cert.pem': expired.cert, 'key.pem': expired.key });
  await files.reload();
  t.is(Math.round(Number(daysLeft()[0]?.[1])), 90);
});

test('TLS files that change › are not used while they do not fit together, or are gone', async t => {
  t.teardown(cleanUp);
  await serve();
  const next = authority.issue('second');
  await write({ 'cert.pem': next.cert });
  await files.reload();
  await files.reload();
  t.is(await subject(), 'first');
  await rm(at('key.pem'));
  await files.reload();
  t.is(await subject(), 'first');
  const complaints = lines.filter(({ message }) => /not usable/.test(message));
  t.is(complaints.length, 2, 'each once');
  await write({ 'key.pem': next.key });
  await files.reload();
  t.is(await subject(), 'second');
});

test('TLS files that change › are not used where the new certificate has expired and the old one has not', async t => {
  t.teardown(cleanUp);
  await serve();
  const [expired, next] = [authority.issue('expired', undefined, -1000), authority.issue('next')];
  await write({ 'cert.pem': expired.cert, 'key.pem': expired.key });
  await files.reload();
  t.is(await subject(), 'first');
  t.regex(JSON.stringify(lines.at(-1)), /MATTING_TLS_CERT_FILE: the certificate has expired/);
  await write({ 'cert.pem': next.cert, 'key.pem': next.key });
  await files.reload();
  t.is(await subject(), 'next');
});

test('TLS files that change › say that a certificate is there, never what the key is', async t => {
  t.teardown(cleanUp);
  await serve();
  t.true(JSON.stringify(lines).includes('CN=first'));
  t.false(JSON.stringify(lines).includes('PRIVATE'));
});

/** Output of a program that bin/node24 starts and that calls 127.0.0.1. */
async function called(): Promise<{ stdout: string; stderr: string }> {
  await write({ 'ca.pem': authority.cert });
  const module = JSON.stringify(path.resolve(import.meta.dirname, '../tls-files.ts'));
  const settings = JSON.stringify({ ...NO_TLS, serverCaFile: at('ca.pem') });
  const program = `
    import { Client } from '@grpc/grpc-js';
    import { TlsFiles } from ${module};
    const log = { info: () => undefined, warn: () => undefined };
    const files = await TlsFiles.open(${settings}, { log });
    const { credentials, options } = files.channelSecurity();
    const client = new Client('127.0.0.1:${port}', credentials, options);
    const same = bytes => bytes;
    client.makeUnaryRequest('/a/b', same, same, Buffer.alloc(0), error => {
      console.log(error.code, error.details);
      process.exit();
    });`;
  const node = path.resolve(import.meta.dirname, '../../../bin/node24');
  const args = [node, '--input-type=module', '-e', program];
  return await promisify(execFile)('sh', args, { cwd: import.meta.dirname });
}

test('a peer that is called by its address › has it in its certificate, and Node warns of nothing', async t => {
  t.teardown(cleanUp);
  await serve();
  // 12: the call arrived and has no handler.
  t.deepEqual(await called(), {
    stdout: '12 The server does not implement the method /a/b\n',
    stderr: '',
  });
});

test('a peer that is called by its address › is refused where its certificate has another', async t => {
  t.teardown(cleanUp);
  await serve();
  const other = authority.issue('other', ['127.0.0.2', 'localhost']);
  await write({ 'cert.pem': other.cert, 'key.pem': other.key });
  await files.reload();
  const { stdout, stderr } = await called();
  t.regex(stdout, /^14 .*127\.0\.0\.1 is not in the cert's list/);
  t.is(stderr, '');
});
