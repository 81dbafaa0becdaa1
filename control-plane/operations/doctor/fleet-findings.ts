/** The programs that run: this machine's control plane, and the nodes that registered. */
import { askHttp, baseOf, refusalOf } from '#program/doctor/ask.ts';
import { type Finding, failure, look, ok, warning } from '#program/doctor/findings.ts';
import pkg from '../../../package.json' with { type: 'json' };
import type { NodeMember } from '../../core/nodes/node-store.ts';
import type { CoreSettings } from '../../core/settings.ts';

const CONTROL_PLANE = 'control plane';
const NODES = 'nodes';
/** Beyond it a page says no more than the first ones do. */
export const NODES_ASKED_MAX = 64;
const NODES_AT_ONCE_MAX = 8;

/** What listens at the addresses of this configuration; no other machine is asked. */
export async function controlPlaneFindings(config: CoreSettings): Promise<readonly Finding[]> {
  const { host, port, metricsHost, metricsPort } = config;
  if (port === 0 || metricsPort === 0) return [];
  const ready = await askHttp(`${baseOf(host, port)}/readyz`);
  if (ready === undefined) {
    const found = `none answers at ${host}:${port} of this machine`;
    const advice = 'start it, or read its last line on standard error; else run this beside one';
    return [warning(CONTROL_PLANE, found, advice)];
  }
  const metrics = (await askHttp(`${baseOf(metricsHost, metricsPort)}/metrics`))?.text ?? '';
  const version = /^matting_control_info\{version="([^"]+)"\}/m.exec(metrics)?.[1];
  const findings: Finding[] = [];
  if (version === undefined) {
    const found = `no control plane's metrics are at ${metricsHost}:${metricsPort}`;
    const advice = `something else may listen at ${host}:${port}, or it has other variables`;
    findings.push(warning(CONTROL_PLANE, found, advice));
  } else if (version !== pkg.version) {
    const found = `${version} runs, and this is ${pkg.version}`;
    findings.push(warning(CONTROL_PLANE, found, 'finish the upgrade: restart it'));
  }
  if (ready.status === 200) return [...findings, ok(CONTROL_PLANE, `ready at ${host}:${port}`)];
  const causes = [...metrics.matchAll(/^matting_control_unready\{cause="([^"]+)"\} 1$/gm)];
  const why = causes.map(([, cause]) => cause).join(', ') || `/readyz is ${ready.status}`;
  const advice = 'the line "not ready" of its log has the error';
  return [...findings, failure(CONTROL_PLANE, `not ready: ${why}`, advice)];
}

/** @param onDemand nodes come when there is work */
export async function nodeFindings(
  members: readonly NodeMember[],
  onDemand: boolean,
): Promise<readonly Finding[]> {
  const live = members.filter(({ live: isLive }) => isLive);
  const findings = [...membershipFindings(members, live, onDemand)];
  const asked = live.slice(0, NODES_ASKED_MAX);
  const answers: (readonly Finding[])[] = [];
  const queue = asked.entries();
  const work = async () => {
    for (const [index, member] of queue) {
      const name = `node ${member.nodeId}`;
      answers[index] = await look(name, 'see its log', () => oneNode(name, member));
    }
  };
  await Promise.all(Array.from({ length: NODES_AT_ONCE_MAX }, work));
  findings.push(...answers.flat());
  if (live.length > asked.length) {
    findings.push(ok(NODES, `${live.length - asked.length} more were not asked`));
  }
  return findings;
}

function membershipFindings(
  members: readonly NodeMember[],
  live: readonly NodeMember[],
  onDemand: boolean,
): Finding[] {
  const findings: Finding[] = [];
  const taking = live.filter(({ draining }) => !draining);
  if (taking.length > 0 || onDemand) {
    findings.push(ok(NODES, `${taking.length} of ${members.length} take images`));
  } else {
    const found = `none of ${members.length} takes images: nothing is cut out`;
    const advice = 'start one; if one runs, see its log, its token and its registry address';
    findings.push(failure(NODES, found, advice));
  }
  const names = (some: readonly NodeMember[]) =>
    some
      .slice(0, 10)
      .map(({ nodeId }) => nodeId)
      .join(', ');
  const draining = live.filter(node => node.draining);
  if (draining.length > 0) {
    const found = `${draining.length} are drained: ${names(draining)}`;
    findings.push(warning(NODES, found, 'matting nodes undrain NODE, where it should work'));
  }
  const silent = members.filter(node => !node.live && !node.gone);
  if (silent.length > 0) {
    const found = `${silent.length} fell silent: ${names(silent)}`;
    const advice = 'a machine is gone or cut off; a week after its last sign it is forgotten';
    findings.push(warning(NODES, found, advice));
  }
  const others = live.filter(({ version }) => version !== pkg.version);
  if (others.length > 0) {
    const versions = [...new Set(others.map(({ version }) => version))].join(', ');
    const found = `${others.length} are of version ${versions}, and this is ${pkg.version}`;
    findings.push(warning(NODES, found, 'finish the upgrade: restart them'));
  }
  return findings;
}

/** As control planes reach it: at the addresses it registered. */
async function oneNode(name: string, { address, httpAddress }: NodeMember): Promise<Finding[]> {
  const closed = await refusalOf(address);
  if (closed !== undefined) {
    const found = `${address} cannot be reached from here: ${closed}`;
    const advice = 'correct its MATTING_NODE_ADVERTISE_ADDRESS, or the network between';
    return [failure(name, found, advice)];
  }
  const info = httpAddress === '' ? undefined : await askHttp(`http://${httpAddress}/info`);
  const said = info === undefined ? undefined : capacityOf(info.text);
  if (said !== undefined) return [ok(name, said)];
  const found = `takes connections at ${address}; its HTTP port does not say what it is`;
  return [warning(name, found, 'open its MATTING_NODE_HTTP_PORT to the control planes')];
}

interface NodeInfo {
  readonly version: string;
  readonly plan: string;
  readonly executionProviderSelected: string;
  readonly executionProviderRequested: string;
  readonly engines: number;
  readonly pictureWorkers: number;
  readonly limits: { readonly megapixelsMax: number; readonly imagesMax: number };
}

/** Undefined: not what a node answers. */
function capacityOf(text: string): string | undefined {
  let info: Partial<NodeInfo> | null;
  try {
    info = JSON.parse(text) as Partial<NodeInfo> | null;
  } catch {
    return undefined;
  }
  if (typeof info?.version !== 'string' || typeof info.limits?.imagesMax !== 'number') {
    return undefined;
  }
  const { version, plan, executionProviderSelected: provider, limits } = info;
  const room = `${limits.imagesMax} images, ${Math.round(limits.megapixelsMax)} megapixels at once`;
  const { engines, pictureWorkers } = info;
  return `${version}, ${plan} on ${provider}, ${engines} engines, ${pictureWorkers} workers: ${room}`;
}
