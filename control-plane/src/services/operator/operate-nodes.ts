/** The operator's use cases on nodes: who is there, who is to take nothing new, where one answers. */
import { ContractError } from '#contract/errors.ts';
import type { NodeStore } from '../../store/cluster/node-store.ts';
import { type OperatorNode, viewNode } from './operator-view.ts';

export interface DrainedNode {
  readonly node_id: string;
  readonly draining: boolean;
}

export interface OperateNodesDependencies {
  readonly nodes: Pick<NodeStore, 'find' | 'listAll' | 'setDraining'>;
  /** The table has changed through this process. */
  readonly onChanged?: () => void;
}

export class OperateNodes {
  readonly #nodes: OperateNodesDependencies['nodes'];
  readonly #onChanged: (() => void) | undefined;

  constructor({ nodes, onChanged }: OperateNodesDependencies) {
    this.#nodes = nodes;
    this.#onChanged = onChanged;
  }

  /** All that registered, the silent ones too, by id. */
  async list(): Promise<OperatorNode[]> {
    return (await this.#nodes.listAll()).map(viewNode);
  }

  /** @throws ContractError NOT_FOUND */
  async show(nodeId: string): Promise<OperatorNode> {
    const member = await this.#nodes.find(nodeId);
    if (member === undefined) throw notFound(nodeId);
    return viewNode(member);
  }

  /**
   * Dispatch leaves it alone within a second, the node itself hears of it with its next heartbeat.
   * It stays so over restarts of the node.
   * @throws ContractError NOT_FOUND
   */
  async setDraining(nodeId: string, draining: boolean): Promise<DrainedNode> {
    if (!(await this.#nodes.setDraining(nodeId, draining))) throw notFound(nodeId);
    this.#onChanged?.();
    return { node_id: nodeId, draining };
  }

  /**
   * host:port of its HTTP endpoints, as the node registered it. A silent one is asked too: that its
   * heartbeats fail says nothing about the rest of it.
   * @throws ContractError NOT_FOUND where it is unknown, has left, or has none.
   */
  async requireHttpAddress(nodeId: string): Promise<string> {
    const member = await this.#nodes.find(nodeId);
    if (member === undefined) throw notFound(nodeId);
    if (member.gone) throw new ContractError('NOT_FOUND', `node "${nodeId}" has left the fleet`);
    if (member.httpAddress === '') {
      throw new ContractError('NOT_FOUND', `node "${nodeId}" has no HTTP endpoints`);
    }
    return member.httpAddress;
  }
}

function notFound(nodeId: string): ContractError {
  return new ContractError('NOT_FOUND', `there is no node "${nodeId}"`);
}
