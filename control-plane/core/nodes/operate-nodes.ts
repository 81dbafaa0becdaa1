/** The operator's use cases on nodes: list them, drain and undrain one, find its HTTP endpoints. */
import { ContractError } from '#contract/errors.ts';
import { type OperatorNode, viewNode } from '../jobs/operator-view.ts';
import type { NodeMember, NodeStore } from './node-store.ts';

export class OperateNodes {
  readonly #nodes: NodeStore;
  readonly #onChanged: (() => void) | undefined;

  /** @param onChanged called when this process has changed the table */
  constructor({ nodes }: { readonly nodes: NodeStore }, onChanged?: () => void) {
    this.#nodes = nodes;
    this.#onChanged = onChanged;
  }

  async list(): Promise<OperatorNode[]> {
    return (await this.#nodes.listAll()).map(viewNode);
  }

  async show(nodeId: string): Promise<OperatorNode> {
    return viewNode(await this.#require(nodeId));
  }

  /** Dispatch sends it nothing new within a second; the node learns it with its next heartbeat. */
  async setDraining(nodeId: string, draining: boolean) {
    if (!(await this.#nodes.setDraining(nodeId, draining))) throw notFound(nodeId);
    this.#onChanged?.();
    return { node_id: nodeId, draining };
  }

  /** Also of a silent node: its endpoints may answer though its heartbeats fail. */
  async requireHttpAddress(nodeId: string): Promise<string> {
    const member = await this.#require(nodeId);
    if (member.gone) throw new ContractError('NOT_FOUND', `node "${nodeId}" has left the fleet`);
    if (member.httpAddress === '') {
      throw new ContractError('NOT_FOUND', `node "${nodeId}" has no HTTP endpoints`);
    }
    return member.httpAddress;
  }

  async #require(nodeId: string): Promise<NodeMember> {
    const member = await this.#nodes.find(nodeId);
    if (member === undefined) throw notFound(nodeId);
    return member;
  }
}

function notFound(nodeId: string): ContractError {
  return new ContractError('NOT_FOUND', `there is no node "${nodeId}"`);
}
