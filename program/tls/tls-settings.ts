/** MATTING_TLS_*, the same for both programs. */
import type { EnvReader } from '../env.ts';

export interface TlsSettings {
  /** Certificate with chain and key, PEM. If set, the program's gRPC port speaks TLS. */
  readonly identity: { readonly certFile: string; readonly keyFile: string } | undefined;
  /** Authority of callers' certificates. If set, every connection needs one. */
  readonly clientCaFile: string | undefined;
  /** Authority of servers' certificates. If set, connections to other programs use TLS. */
  readonly serverCaFile: string | undefined;
  /** The name in servers' certificates, if it is not the host of the address. */
  readonly serverName: string | undefined;
}

const FILE_FORM = 'the path of a PEM file';
const HOST_NAME = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;

export function readTlsSettings(whole: EnvReader): TlsSettings {
  const reader = whole.section('TLS');
  const file = (variable: string, about: string) =>
    reader.string(variable, { about, expected: FILE_FORM, default: undefined });
  const certFile = file(
    'MATTING_TLS_CERT_FILE',
    `The program’s own certificate with its chain. Its gRPC port then speaks TLS only, and the
      program shows the certificate to other programs.`,
  );
  const keyFile = file(
    'MATTING_TLS_KEY_FILE',
    'The key of that certificate, without a passphrase.',
  );
  const clientCaFile = file(
    'MATTING_TLS_CLIENT_CA_FILE',
    'The authorities of client certificates. The gRPC port then requires one of each client.',
  );
  const serverCaFile = file(
    'MATTING_TLS_SERVER_CA_FILE',
    'The authorities of the other programs. Connections to them then use TLS.',
  );
  const serverName = reader.string('MATTING_TLS_SERVER_NAME', {
    about: 'The name that the certificates of the other programs must have.',
    otherwise: 'the host of their address',
    pattern: HOST_NAME,
    expected: 'a host name',
    default: undefined,
  });
  if ((certFile === undefined) !== (keyFile === undefined)) {
    const [missing, given] = certFile === undefined ? ['CERT', 'KEY'] : (['KEY', 'CERT'] as const);
    reader.problem(
      `MATTING_TLS_${missing}_FILE`,
      `set together with MATTING_TLS_${given}_FILE: ${FILE_FORM}`,
    );
  }
  if (clientCaFile !== undefined && certFile === undefined && keyFile === undefined) {
    reader.problem(
      'MATTING_TLS_CERT_FILE',
      `set where MATTING_TLS_CLIENT_CA_FILE is: ${FILE_FORM}`,
    );
  }
  if (serverName !== undefined && serverCaFile === undefined) {
    reader.problem(
      'MATTING_TLS_SERVER_CA_FILE',
      `set where MATTING_TLS_SERVER_NAME is: ${FILE_FORM}`,
    );
  }
  const identity =
    certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile };
  return { identity, clientCaFile, serverCaFile, serverName };
}
