/**
 * The doctor examines the nodes. The control planes that send images say whether a node gets any.
 * What this machine can reach is only a second look, since it may be another one.
 */
import type { viewNodes } from '@matting/core/operator/operate-nodes.ts';
import { askHttp, connectionFailureOf } from '@matting/program/doctor/ask.ts';
import {
  counted,
  type Finding,
  failure,
  look,
  ok,
  warning,
} from '@matting/program/doctor/findings.ts';
import { VERSION } from '@matting/program/version.ts';

const NODES = 'nodes';
/** Past this many, a page says no more than the first ones do. */
const NODES_ASKED_MAX = 64;
const NODES_AT_ONCE_MAX = 8;
const NAMED_MAX = 10;
const SECOND_MS = 1000;

type OperatorNode = ReturnType<typeof viewNodes>[number];

interface ExaminedNodes {
  readonly nodes: readonly OperatorNode[];
  /** Control planes that report what they see of the nodes. */
  readonly replicas: readonly string[];
  readonly queued: { readonly jobs: number; readonly oldestAgeMs: number };
  /** Nodes come when there is work. */
  readonly onDemand: boolean;
  readonly offered?: readonly string[] | undefined;
}

export async function nodeFindings(examined: ExaminedNodes): Promise<readonly Finding[]> {
  const { nodes, replicas, offered = [] } = examined;
  const findings = [
    ...takingFindings(nodes, examined),
    ...stateFindings(nodes, replicas.length > 0),
    ...versionFindings(nodes),
    ...modelFindings(nodes, offered),
  ];
  const called = nodes.filter(isLive);
  const asked = called.slice(0, NODES_ASKED_MAX);
  const answers: (readonly Finding[])[] = [];
  const queue = asked.entries();
  const work = async () => {
    for (const [index, node] of queue) {
      const name = `node ${node.node_id}`;
      const advice = 'see the log of the node';
      answers[index] = await look(name, advice, () => oneNode(name, node));
    }
  };
  await Promise.all(Array.from({ length: NODES_AT_ONCE_MAX }, work));
  findings.push(...answers.flat());
  if (called.length > asked.length) {
    findings.push(ok(NODES, `${called.length - asked.length} more were not checked`));
  }
  return findings;
}

/** A node that neither left the fleet nor is silent holds its lease. */
function isLive({ state }: OperatorNode): boolean {
  return state !== 'gone' && state !== 'silent';
}

/** Whether dispatch has a node to send images to. */
function takingFindings(
  nodes: readonly OperatorNode[],
  { replicas, queued, onDemand }: ExaminedNodes,
): Finding[] {
  const taking = nodes.filter(({ state }) => state === 'live');
  if (taking.length > 0) return [ok(NODES, `${taking.length} of ${nodes.length} take images`)];
  const called = nodes.filter(isLive);
  if (onDemand && called.length === 0) {
    return [ok(NODES, `0 of ${nodes.length} take images; they start when there is work`)];
  }
  if (called.length > 0 && replicas.length === 0) {
    const found = `no control plane says which of ${nodes.length} it sends images to`;
    const advice = 'start a control plane, or restart those of an older version';
    return [warning(NODES, found, advice)];
  }
  const why = called.length === 0 ? '' : `: ${named(called)}`;
  const { jobs, oldestAgeMs } = queued;
  const waited = Math.round(oldestAgeMs / SECOND_MS);
  const waiting = jobs === 0 ? '' : `; ${counted(jobs, 'job')} waited for up to ${waited} s`;
  const advice =
    called.length === 0
      ? 'start a node; if one runs, check its log, token and registry address'
      : 'see docs/runbook.md, MattingNoNode';
  return [failure(NODES, `none of ${nodes.length} takes images${why}${waiting}`, advice)];
}

const STATES: readonly (readonly [state: OperatorNode['state'], are: string, advice: string])[] = [
  ['unreachable', 'unreachable', 'see docs/runbook.md, MattingNodesUnroutable'],
  ['unready', 'reached, without taking images', 'see the log of the node'],
  ['draining', 'drained', 'to use one again, run matting nodes undrain NODE'],
  ['silent', 'silent', 'check the machine and its network; the list drops it after a week'],
];

function stateFindings(nodes: readonly OperatorNode[], looksSomebody: boolean): Finding[] {
  const findings: Finding[] = [];
  for (const [state, are, advice] of STATES) {
    const some = nodes.filter(node => node.state === state);
    if (some.length === 0) continue;
    findings.push(
      warning(
        NODES,
        `${some.length} ${some.length === 1 ? 'is' : 'are'} ${are}: ${named(some)}`,
        advice,
      ),
    );
  }
  const joining = looksSomebody ? nodes.filter(({ state }) => state === 'joining') : [];
  if (joining.length > 0) {
    const found = `no control plane has called ${named(joining, false)} yet`;
    findings.push(warning(NODES, found, 'run doctor again in some seconds'));
  }
  const partly = nodes.filter(({ state, cause }) => state === 'live' && cause !== null);
  if (partly.length > 0) {
    const found = `some control planes send no images to ${named(partly)}`;
    const advice = 'compare the control planes: network, certificates, node token';
    findings.push(warning(NODES, found, advice));
  }
  return findings;
}

function named(nodes: readonly OperatorNode[], withCause = true): string {
  const names = nodes.slice(0, NAMED_MAX).map(({ node_id: nodeId, cause }) => {
    return cause === null || !withCause ? nodeId : `${nodeId} (${cause})`;
  });
  const more = nodes.length - names.length;
  return names.join(', ') + (more > 0 ? ` and ${more} more` : '');
}

function versionFindings(nodes: readonly OperatorNode[]): Finding[] {
  const others = nodes.filter(node => isLive(node) && node.version !== VERSION);
  if (others.length === 0) return [];
  const versions = [...new Set(others.map(({ version }) => version))].join(', ');
  const found = `${others.length} run ${versions}, and this is ${VERSION}`;
  return [warning(NODES, found, 'restart them to finish the upgrade')];
}

function modelFindings(nodes: readonly OperatorNode[], offered: readonly string[]): Finding[] {
  const findings: Finding[] = [];
  for (const { node_id: nodeId, models_left_out: models } of nodes) {
    if (models.length === 0) continue;
    const found = `${nodeId} differs from most nodes in ${models.join(', ')}: it gets no such jobs`;
    findings.push(warning(NODES, found, 'copy the same models to it, or remove them from it'));
  }
  const there = new Set(
    nodes.flatMap(({ state, models }) =>
      state === 'live' && models ? models.map(({ name }) => name) : [],
    ),
  );
  const missing = there.size === 0 ? [] : offered.filter(name => !there.has(name));
  if (missing.length > 0) {
    const found = `MATTING_MODELS_OFFERED lists ${missing.join(', ')}, but no node that takes images has it`;
    findings.push(
      warning(NODES, found, 'run matting models fetch on the nodes, or remove it from the list'),
    );
  }
  return findings;
}

/** Describes the node as the control planes see it, and as this machine reaches it. */
async function oneNode(
  name: string,
  { state, cause, address, http_address: httpAddress, seen_by: seenBy }: OperatorNode,
): Promise<Finding[]> {
  const closed = await connectionFailureOf(address);
  if (state === 'unreachable') {
    const here = closed === undefined ? `this machine connects to ${address}` : `here: ${closed}`;
    const advice = 'see docs/runbook.md, MattingNodesUnroutable';
    return [failure(name, `no control plane reaches it: ${cause} (${here})`, advice)];
  }
  if (closed !== undefined) {
    const found = `cannot reach ${address} from here: ${closed}`;
    const isReached = seenBy.some(({ state: seen }) => seen !== 'unreachable');
    if (isReached) return [ok(name, `control planes reach it; this machine ${found}`)];
    const advice = 'check its MATTING_NODE_ADVERTISE_ADDRESS and the network';
    return [failure(name, found, advice)];
  }
  const info = httpAddress === null ? undefined : await askHttp(`http://${httpAddress}/info`);
  const said = info === undefined ? undefined : capacityOf(info.text);
  if (said !== undefined) return [ok(name, said)];
  const found = `takes connections at ${address}, but its HTTP port does not answer`;
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
