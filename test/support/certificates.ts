/** Certificates for tests (RFC 5280 section 4.1, P-256), without openssl. */
import {
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto';
import { isIPv4 } from 'node:net';

export interface Certificate {
  readonly cert: string;
  /** PKCS #8. */
  readonly key: string;
}

export const NO_TLS = {
  identity: undefined,
  clientCaFile: undefined,
  serverCaFile: undefined,
  serverName: undefined,
};

const HOUR_MS = 3_600_000;

export class TestAuthority {
  readonly name: string;
  readonly cert: string;
  readonly #key: KeyObject;

  /** @param endsMs of its own certificate, from now */
  constructor(name = `authority ${randomBytes(4).toString('hex')}`, endsMs?: number) {
    this.name = name;
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    this.#key = privateKey;
    const extensions = [extension('551d13', true, sequence(der(0x01, Buffer.from([0xff]))))];
    this.cert = certificate({
      subject: name,
      issuer: name,
      publicKey: createPublicKey(privateKey),
      signer: privateKey,
      endsMs,
      extensions,
    });
  }

  /**
   * @param hosts IPv4 addresses and DNS names
   * @param endsMs from now; negative: expired
   */
  issue(
    subject: string,
    hosts: readonly string[] = ['127.0.0.1', 'localhost'],
    endsMs?: number,
  ): Certificate {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const names = hosts.map(host =>
      isIPv4(host)
        ? der(0x87, Buffer.from(host.split('.').map(Number)))
        : der(0x82, Buffer.from(host, 'latin1')),
    );
    return {
      key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
      cert: certificate({
        subject,
        issuer: this.name,
        publicKey: createPublicKey(privateKey),
        signer: this.#key,
        endsMs,
        extensions: names.length === 0 ? [] : [extension('551d11', false, sequence(...names))],
      }),
    };
  }
}

interface CertificateFields {
  readonly subject: string;
  readonly issuer: string;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly endsMs?: number | undefined;
  readonly extensions: readonly Buffer[];
}

function certificate(fields: CertificateFields): string {
  const algorithm = sequence(oid('2a8648ce3d040302'));
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    name(fields.issuer),
    sequence(instant(Date.now() - HOUR_MS), instant(Date.now() + (fields.endsMs ?? 24 * HOUR_MS))),
    name(fields.subject),
    fields.publicKey.export({ type: 'spki', format: 'der' }),
    ...(fields.extensions.length === 0 ? [] : [der(0xa3, sequence(...fields.extensions))]),
  );
  const signature = sign('sha256', body, fields.signer);
  const whole = sequence(body, algorithm, der(0x03, Buffer.concat([Buffer.from([0]), signature])));
  const lines = whole.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

function extension(id: string, critical: boolean, value: Buffer): Buffer {
  const flag = critical ? [der(0x01, Buffer.from([0xff]))] : [];
  return sequence(oid(id), ...flag, der(0x04, value));
}

function name(commonName: string): Buffer {
  return sequence(der(0x31, sequence(oid('550403'), der(0x0c, Buffer.from(commonName)))));
}

function instant(ms: number): Buffer {
  const text = new Date(ms).toISOString().replaceAll(/[-:T]|\.\d+/g, '');
  // RFC 5280 requires two digits for the year before 2050.
  return der(0x17, Buffer.from(text.slice(2)));
}

function oid(hexadecimal: string): Buffer {
  return der(0x06, Buffer.from(hexadecimal, 'hex'));
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts));
}

function der(tag: number, content: Buffer): Buffer {
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), content]);
  const bytes = length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...bytes]), content]);
}
