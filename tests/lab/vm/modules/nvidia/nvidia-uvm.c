// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Stands in for nvidia_uvm: loaded beside the driver, and keeps it loaded as long as it is there itself.
 *
 * Copyright (c) 2026 The hpcai.gpu_cluster developers
 */
#include <linux/module.h>

#include "version.h"

int nvidia_lab_gpus(void);

static int __init uvm_init(void)
{
	pr_info("nvidia-uvm: %d GPUs\n", nvidia_lab_gpus());
	return 0;
}

static void __exit uvm_exit(void)
{
}

module_init(uvm_init);
module_exit(uvm_exit);
MODULE_DESCRIPTION("Stands in for NVIDIA's driver in tests");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(LAB_VERSION);
