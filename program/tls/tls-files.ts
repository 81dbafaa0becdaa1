/**
 * Certificate files of gRPC servers and channels, followed at run time. Valid new content applies
 * to new connections.
 *
 * | files                                        | at the start     | later                         |
 * |----------------------------------------------|------------------|-------------------------------|
 * | readable, key and certificate match          | used             | used for new connections      |
 * | the same, the certificate expired            | used, a warning  | a warning; the last good stay |
 * | anything else                                | TlsFileError     | a warning; the last good stay |
 *
 * A rotation that writes one file after the other passes through the last row only.
 */
import { X509Certificate } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  ChannelCredentials,
  type ChannelOptions,
  experimental,
  ServerCredentials,
} from '@grpc/grpc-js';
import { Followed, type FollowLog } from '../followed-files.ts';
import { type CertificateEnd, endsOfFiles, warnOfEnds } from './certificate-ends.ts';
import { type Identity, readTlsContent, type TlsContent, TlsFileError } from './tls-content.ts';
import type { TlsSettings } from './tls-settings.ts';

export interface ChannelSecurity {
  readonly credentials: ChannelCredentials;
  readonly options: ChannelOptions;
}

interface TlsFilesOptions {
  readonly log: FollowLog;
  readonly pollMs?: number;
}

export class TlsFiles {
  readonly #settings: TlsSettings;
  readonly #log: FollowLog;
  readonly #identity: CertificateSource<Identity>;
  readonly #clientCa: CertificateSource<Buffer>;
  readonly #serverCa: CertificateSource<Buffer>;
  readonly #followed: Followed<TlsContent> | undefined;

  private constructor(settings: TlsSettings, content: TlsContent, options: TlsFilesOptions) {
    this.#settings = settings;
    this.#log = options.log;
    this.#identity = new CertificateSource(content.identity);
    this.#clientCa = new CertificateSource(content.clientCa);
    this.#serverCa = new CertificateSource(content.serverCa);
    if (Object.values(content).every(part => part === undefined)) return;
    this.#logContent('TLS files read', content);
    const onChange = (changed: TlsContent) => this.#change(changed);
    const read = () => this.#readAgain();
    this.#followed = new Followed(content, read, { what: 'TLS files', ...options, onChange });
  }

  static async open(settings: TlsSettings, options: TlsFilesOptions): Promise<TlsFiles> {
    return new TlsFiles(settings, await readTlsContent(settings), options);
  }

  get ends(): CertificateEnd[] {
    return endsOf({
      identity: this.#identity.current,
      clientCa: this.#clientCa.current,
      serverCa: this.#serverCa.current,
    });
  }

  /** Whether every connection has a valid certificate. */
  get checksCallers(): boolean {
    return this.#settings.clientCaFile !== undefined;
  }

  /** Credentials of the program's own port: plain text without a certificate. */
  serverCredentials(): ServerCredentials {
    if (this.#identity.current === undefined) return ServerCredentials.createInsecure();
    const callers = this.#clientCa.current === undefined ? null : this.#providerOf(this.#clientCa);
    // grpc-js 1.14's types name them differently: the first is the identity, the second the
    // authorities.
    const own = callers ?? this.#providerOf(this.#clientCa);
    return experimental.createCertificateProviderServerCredentials(own, callers, callers !== null);
  }

  /** Security of calls to other programs: plain text without an authority. */
  channelSecurity(): ChannelSecurity {
    if (this.#serverCa.current === undefined) {
      return { credentials: ChannelCredentials.createInsecure(), options: {} };
    }
    const { serverName } = this.#settings;
    const provider = this.#providerOf(this.#serverCa);
    const identity = this.#identity.current === undefined ? null : provider;
    return {
      credentials: experimental.createCertificateProviderChannelCredentials(provider, identity),
      options: serverName === undefined ? {} : { 'grpc.ssl_target_name_override': serverName },
    };
  }

  async reload(): Promise<void> {
    await this.#followed?.reload();
  }

  /** Stops following. Connections and credentials stay. */
  close(): void {
    this.#followed?.close();
  }

  async #readAgain(): Promise<TlsContent> {
    const content = await readTlsContent(this.#settings);
    const [next, own] = [content.identity, this.#identity.current];
    if (next !== undefined && own !== undefined && isExpired(next) && !isExpired(own)) {
      throw new TlsFileError('MATTING_TLS_CERT_FILE', 'the certificate has expired');
    }
    return content;
  }

  #change(content: TlsContent): void {
    // Authorities come first, since a new certificate may need a new one.
    this.#clientCa.update(content.clientCa);
    this.#serverCa.update(content.serverCa);
    this.#identity.update(content.identity);
    this.#logContent('TLS files changed; new connections use them', content);
  }

  #logContent(message: string, content: TlsContent): void {
    const { identity, clientCa, serverCa } = content;
    const own = identity && new X509Certificate(identity.certificate);
    const fields = {
      subject: own?.subject,
      validTo: own?.validTo,
      callersAreChecked: clientCa !== undefined,
      serversAreChecked: serverCa !== undefined,
    };
    const expired = identity !== undefined && isExpired(identity);
    this.#log[expired ? 'warn' : 'info'](fields, expired ? `${message}; EXPIRED` : message);
    warnOfEnds(endsOf(content), this.#log);
  }

  #providerOf(authority: CertificateSource<Buffer>): experimental.CertificateProvider {
    const identity = this.#identity;
    return {
      addCaCertificateListener: listener =>
        authority.follow(listener, caCertificate => listener({ caCertificate })),
      removeCaCertificateListener: listener => authority.leave(listener),
      addIdentityCertificateListener: listener => identity.follow(listener, listener),
      removeIdentityCertificateListener: listener => identity.leave(listener),
    };
  }
}

function isExpired({ certificate }: Identity): boolean {
  return new X509Certificate(certificate).validToDate.getTime() < Date.now();
}

function endsOf({ identity, clientCa, serverCa }: TlsContent): CertificateEnd[] {
  return endsOfFiles([
    ['MATTING_TLS_CERT_FILE', identity?.certificate, 'chain'],
    ['MATTING_TLS_CLIENT_CA_FILE', clientCa, 'authorities'],
    ['MATTING_TLS_SERVER_CA_FILE', serverCa, 'authorities'],
  ]);
}

class CertificateSource<T extends Buffer | Identity> {
  #current: T | undefined;
  /** Keys are the functions by which grpc-js removes them. */
  readonly #listeners = new Map<unknown, (value: T) => void>();

  constructor(current: T | undefined) {
    this.#current = current;
  }

  get current(): T | undefined {
    return this.#current;
  }

  update(next: T | undefined): void {
    if (next === undefined || this.#current === undefined) return;
    if (isDeepStrictEqual(next, this.#current)) return;
    this.#current = next;
    for (const listener of this.#listeners.values()) listener(next);
  }

  follow(key: unknown, listener: (value: T) => void): void {
    this.#listeners.set(key, listener);
    // grpc-js has not finished its registration yet.
    process.nextTick(() => {
      if (this.#current !== undefined) this.#listeners.get(key)?.(this.#current);
    });
  }

  leave(key: unknown): void {
    this.#listeners.delete(key);
  }
}
