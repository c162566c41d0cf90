"""The chart on a real API server: etcd and kube-apiserver of the test's own, and the real Helm.

No controller, scheduler or kubelet runs: what the API server accepts, keeps and deletes is real, and no pod starts.
"""
