/** Makes the operator's port and the use cases behind it. Opens nothing. */
import type { Config } from './config.ts';
import { buildOperatorApp, type OperatorAppOptions } from './http/operator-app.ts';
import { OperateAccounts } from './services/operator/operate-accounts.ts';
import { OperateCredits } from './services/operator/operate-credits.ts';
import { OperateJobs } from './services/operator/operate-jobs.ts';
import { OperateNodes } from './services/operator/operate-nodes.ts';
import { OperateWebhooks } from './services/operator/operate-webhooks.ts';
import { ReadQueue } from './services/operator/read-queue.ts';
import { OperateOrders } from './services/sales/operate-orders.ts';
import type { Stores } from './store/stores.ts';

export interface OperatorPortParts {
  readonly config: Pick<Config, 'baseUrl' | 'operatorKey' | 'queueMegapixelsMax'>;
  readonly stores: Stores;
  readonly metrics: { readonly registry: OperatorAppOptions['metrics'] };
  readonly log: OperatorAppOptions['logger'];
}

/** @param onNodesChanged this process has changed the table of nodes */
export function composeOperatorPort(
  { config, stores, metrics, log }: OperatorPortParts,
  onNodesChanged: () => void,
) {
  return buildOperatorApp(
    {
      operateAccounts: new OperateAccounts(stores),
      operateCredits: new OperateCredits(stores),
      operateJobs: new OperateJobs(stores),
      operateNodes: new OperateNodes({ nodes: stores.nodes, onChanged: onNodesChanged }),
      operateOrders: new OperateOrders(stores),
      operateWebhooks: new OperateWebhooks(stores),
      readQueue: new ReadQueue(stores, config.queueMegapixelsMax),
    },
    {
      baseUrl: config.baseUrl,
      operatorKey: config.operatorKey,
      metrics: metrics.registry,
      logger: log,
    },
  );
}
