import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { whyUnreadable } from '../files.ts';
import type { TlsSettings } from './tls-settings.ts';

/** A chain of certificates or a bundle of authorities. */
const FILE_BYTES_MAX = 1024 * 1024;

/** One line for the operator, without content of the file. */
export class TlsFileError extends Error {
  constructor(variable: string, detail: string, cause?: unknown) {
    super(`${variable}: ${detail}`, { cause });
    this.name = 'TlsFileError';
  }
}

export interface Identity {
  readonly certificate: Buffer;
  readonly privateKey: Buffer;
}

export interface TlsContent {
  readonly identity: Identity | undefined;
  readonly clientCa: Buffer | undefined;
  readonly serverCa: Buffer | undefined;
}

/** @throws TlsFileError names the variable of the unusable file */
export async function readTlsContent(settings: TlsSettings): Promise<TlsContent> {
  const { identity, clientCaFile, serverCaFile } = settings;
  const [own, clientCa, serverCa] = await Promise.all([
    identity && readIdentity(identity),
    clientCaFile && readAuthorities('MATTING_TLS_CLIENT_CA_FILE', clientCaFile),
    serverCaFile && readAuthorities('MATTING_TLS_SERVER_CA_FILE', serverCaFile),
  ]);
  return { identity: own, clientCa: clientCa || undefined, serverCa: serverCa || undefined };
}

async function readIdentity(files: NonNullable<TlsSettings['identity']>): Promise<Identity> {
  const [certificate, privateKey] = await Promise.all([
    readPem('MATTING_TLS_CERT_FILE', files.certFile),
    readPem('MATTING_TLS_KEY_FILE', files.keyFile),
  ]);
  const leaf = requirePem('MATTING_TLS_CERT_FILE', 'holds no certificate', () => {
    // Checks the whole chain, as a TLS context does.
    createSecureContext({ cert: certificate });
    return new X509Certificate(certificate);
  });
  const key = requirePem('MATTING_TLS_KEY_FILE', 'holds no private key without a passphrase', () =>
    createPrivateKey(privateKey),
  );
  if (!leaf.checkPrivateKey(key)) {
    throw new TlsFileError('MATTING_TLS_KEY_FILE', 'is not the key of MATTING_TLS_CERT_FILE');
  }
  return { certificate, privateKey };
}

async function readAuthorities(variable: string, file: string): Promise<Buffer> {
  const bundle = await readPem(variable, file);
  requirePem(variable, 'holds no certificate', () => new X509Certificate(bundle));
  return bundle;
}

async function readPem(variable: string, file: string): Promise<Buffer> {
  let content: Buffer;
  try {
    content = await readFile(file);
  } catch (error) {
    throw new TlsFileError(variable, `the file cannot be read (${whyUnreadable(error)})`, error);
  }
  if (content.length <= FILE_BYTES_MAX) return content;
  throw new TlsFileError(variable, `the file has over ${FILE_BYTES_MAX} bytes`);
}

function requirePem<T>(variable: string, otherwise: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new TlsFileError(variable, `the file ${otherwise}`, error);
  }
}
