/**
 * Certificates out of files, for gRPC servers and channels, followed while the program runs: what
 * is new and fits together is used for the connections made from then on. Those that are open go on
 * as they are.
 *
 * | files                                        | at the start     | later                         |
 * |----------------------------------------------|------------------|-------------------------------|
 * | readable, key and certificate belong together | used             | used for new connections      |
 * | the same, the certificate expired            | used, a warning  | a warning; the last good stay |
 * | anything else                                | TlsFileError     | a warning; the last good stay |
 *
 * So a rotation that writes one file after the other meets a moment of the last row and no more.
 */
import { X509Certificate } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  ChannelCredentials,
  type ChannelOptions,
  experimental,
  ServerCredentials,
} from '@grpc/grpc-js';
import { Followed, type FollowLog } from '../followed.ts';
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
    this.#tell('TLS files read', content);
    const onChange = (changed: TlsContent) => this.#change(changed);
    const read = () => this.#readAgain();
    this.#followed = new Followed(content, read, { what: 'TLS files', ...options, onChange });
  }

  static async open(settings: TlsSettings, options: TlsFilesOptions): Promise<TlsFiles> {
    return new TlsFiles(settings, await readTlsContent(settings), options);
  }

  /** The ends of the files in use, which are the last good ones. */
  get ends(): CertificateEnd[] {
    return endsOf({
      identity: this.#identity.current,
      clientCa: this.#clientCa.current,
      serverCa: this.#serverCa.current,
    });
  }

  /** Whether callers' certificates are checked: every connection has brought a good one then. */
  get checksCallers(): boolean {
    return this.#settings.clientCaFile !== undefined;
  }

  /** The credentials of this program's own port: plain text if no certificate is configured. */
  serverCredentials(): ServerCredentials {
    if (this.#identity.current === undefined) return ServerCredentials.createInsecure();
    const callers = this.#clientCa.current === undefined ? null : this.#providerOf(this.#clientCa);
    // The first is the identity's and the second the authorities', whatever grpc-js 1.14's types call
    // them.
    const own = callers ?? this.#providerOf(this.#clientCa);
    return experimental.createCertificateProviderServerCredentials(own, callers, callers !== null);
  }

  /** The security of calls to other programs: plain text if no authority is configured. */
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

  /** Ends the following; connections and credentials stay as they are. */
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
    // The authorities first: a certificate of a new one must find it.
    this.#clientCa.update(content.clientCa);
    this.#serverCa.update(content.serverCa);
    this.#identity.update(content.identity);
    this.#tell('TLS files changed; new connections use them', content);
  }

  #tell(message: string, content: TlsContent): void {
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

  /** The own identity and one of the authorities, as grpc-js asks for them. */
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

/** The latest good content of one or two files, and listeners for its changes. */
class CertificateSource<T extends Buffer | Identity> {
  #current: T | undefined;
  /** Listeners by the function by which grpc-js knows them. */
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
    // Later, as grpc-js wants it: told at once, it would not have asked for it completely yet.
    process.nextTick(() => {
      if (this.#current !== undefined) this.#listeners.get(key)?.(this.#current);
    });
  }

  leave(key: unknown): void {
    this.#listeners.delete(key);
  }
}
